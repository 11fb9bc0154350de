"""Mixtures: the proportions that a file asks for, at every place; the same pairs whenever and wherever they are asked for."""

import collections
import json
import math
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from builders import choices, compose, resumed, trained
from commands import failed, run

import nmt
from nmt import components
from nmt.data import Mixture, Pairs, Stage, tag_of
from nmt.data.batching import Batching
from nmt.data.epoch_batches import EpochBatches
from nmt.data.filters import Filters
from nmt.data.mixing import Mixing
from nmt.data.modifiers import MISTAKES, MODIFIERS, applied, modifier, noise
from nmt.data.overlap import held_out_in_training, training_rows
from nmt.data.preparation import prepare
from nmt.data.sources.mix import Mix
from nmt.foundation.errors import UserError
from nmt.pipeline.assembly.translation_parts import filters_of, loaded
from nmt.storage import checkpoint as ckpt

FULL = """
datasets:
  clean: clean.tsv.gz
  medium: medium.tsv
  dirty: dirty
stages: [start, mid, end]
start:
  - clean 0.8
  - medium 0.2
  - dirty 0
  - until clean 2   # two passes
mid:
  mix: [clean 0.6, medium 0.3, dirty 0.1, until medium 1]
  modifiers:
  - TitleCase: 0.5
end: [clean 0.4, medium 0.3, dirty 0.3, until dirty 5]
modifiers:
- UpperCase: 0.05
- [{RemoveEndPunct: 0.2}, {Prefix: 0.05, min_words: 2, max_words: 5, template: "__start__ {trg} __end__ "}]
- Noise: 0.0005
  min_word_length: 2
  max_word_length: 5
  max_words: 6
- Typos: 0.05
  char_swap: 0.1
  missing_char: 0.1
seed: 1111
num_fields: 2
trainer: /usr/bin/cat
"""
SIZES = {"clean": 60, "medium": 35, "dirty": 110}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    import gzip

    folder, draw = tmp_path_factory.mktemp("mix"), random.Random(1)
    letters = "abcdefgh"

    def lines(name, size):
        rows = [
            " ".join([name[0].upper(), *draw.choices(letters, k=draw.randint(1, 6)), str(i)])
            for i in range(size)
        ]
        return [(row, " ".join(row.split()[::-1]) + ".") for row in rows]

    corpora = {name: lines(name, size) for name, size in {**SIZES, "val": 6}.items()}
    for name in ("medium", "val"):
        (folder / f"{name}.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in corpora[name]))
    with gzip.open(folder / "clean.tsv.gz", "wt") as file:
        file.write("".join(f"{s}\t{t}\n" for s, t in corpora["clean"]))
    for side, k in (("en", 0), ("de", 1)):
        (folder / f"dirty.{side}").write_text("".join(pair[k] + "\n" for pair in corpora["dirty"]))
    (folder / "mix.yml").write_text(FULL)
    return folder


def mix(folder, text=FULL, **more):
    (folder / "other.yml").write_text(text)
    return Mix(
        config=str(folder / "other.yml"),
        **{"validation": str(folder / "val.tsv"), "source": "en", "target": "de", **more},
    )


def mixing(folder, text=FULL, seed=1):
    splits = mix(folder, text).load()
    return Mixing(splits.mixture, np.arange(len(splits.train), dtype=np.uint32), seed), splits


def test_an_opustrainer_file_is_understood_as_it_is(folder):
    result = mix(folder)
    assert [stage.name for stage in result.stages] == ["start", "mid", "end"]
    assert {name: float(w) for name, w in result.stages[0].weights.items()} == {
        "clean": 0.8,
        "medium": 0.2,
    }
    assert (result.stages[2].until, result.stages[2].passes) == ("dirty", 5)
    names = {function: name for name, function in MODIFIERS.items()}
    first, second = (
        [names[modifier.modify.func] for modifier in stage.modifiers] for stage in result.stages[:2]
    )
    assert first == ["UpperCase", "RemoveEndPunct", "Prefix", "Noise", "Typos"]
    assert second == ["TitleCase"]


def test_every_stage_keeps_its_proportions_until_its_end(folder):
    """Counted pair by pair over the whole training, against the file's own numbers."""
    plan, _splits = mixing(folder)
    bounds = np.cumsum([0, *SIZES.values()])
    names, seen = list(SIZES), collections.defaultdict(lambda: collections.defaultdict(list))
    for epoch in range(math.ceil(plan.epochs)):
        for stage, rows in plan.epoch(epoch):
            for name, low, high in zip(names, bounds, bounds[1:], strict=False):
                seen[stage.name][name] += [int(i) for i in rows[(rows >= low) & (rows < high)]]
    for stage in plan.mixture.stages:
        counts = {name: len(rows) for name, rows in seen[stage.name].items()}
        total = sum(counts.values())
        assert counts[stage.until] == stage.passes * SIZES[stage.until]
        for name, share in stage.weights.items():
            assert counts[name] == pytest.approx(float(share) * total, abs=2)
    assert not seen["start"]["dirty"]
    for name in names:  # each pass holds every pair once, across stages
        row = [i for stage in plan.mixture.stages for i in seen[stage.name][name]]
        for start in range(0, len(row) - SIZES[name] + 1, SIZES[name]):
            assert len({*row[start : start + SIZES[name]]}) == SIZES[name]
    assert plan.epoch(math.ceil(plan.epochs)) == []


def test_an_epoch_is_a_function_of_seed_and_number(folder):
    (one, _), (same, _), (other, _) = mixing(folder), mixing(folder), mixing(folder, seed=2)
    assert all((a[1] == b[1]).all() for a, b in zip(one.epoch(2), same.epoch(2), strict=True))
    assert any((a[1] != b[1]).any() for a, b in zip(one.epoch(2), other.epoch(2), strict=True))


def test_passes_have_different_orders(folder):
    plan, _ = mixing(folder)
    rows = np.concatenate([rows for n in range(3) for _, rows in plan.epoch(n)])
    clean = rows[rows < SIZES["clean"]]
    passes = clean[: 2 * SIZES["clean"]].reshape(2, -1)
    assert (np.sort(passes[0]) == np.sort(passes[1])).all()
    assert (passes[0] != passes[1]).any()


def test_each_batch_of_each_epoch_is_modified_in_its_own_way(folder):
    text = "datasets: {dirty: dirty}\nstages: [all]\nall: [dirty 1, until dirty inf]\n"
    text += "modifiers: [{Typos: 0.5, missing_char: 1.0}]\n"
    tokenizer = components.make(compose("tokenizer=word", "sizes.vocabulary=600"), "tokenizer")
    data = prepare(mix(folder, text).load(), Filters(), tokenizer)
    plan = Mixing(data.splits.mixture, data.kept, 1)
    batching = Batching(sentences=8, tokens=0)
    first, again, second = (
        EpochBatches(data, batching, 1, epoch, mixing=plan) for epoch in (0, 0, 1)
    )
    pairs = data.splits.train.select(range(40))
    modified = first.modified_pairs(pairs, 0).source
    assert modified == again.modified_pairs(pairs, 0).source
    assert modified != first.modified_pairs(pairs, 1).source
    assert modified != second.modified_pairs(pairs, 0).source


def test_batches_stay_by_length_and_within_a_stage(folder):
    config = compose(
        "tokenizer=word", "sizes.vocabulary=600", "batching.sentences=8", "batching.pool=10"
    )
    data = prepare(mix(folder).load(), Filters(), components.make(config, "tokenizer"))
    plan = Mixing(data.splits.mixture, data.kept, 1)
    batches = EpochBatches(data, components.make(config, "batching"), 1, 0, mixing=plan)
    lengths = data.train.source.lengths
    spread = [np.ptp(lengths[rows]) for rows in batches.indices]
    assert np.mean(spread) < 0.5 * np.ptp(lengths)
    start = {int(i) for i in plan.epoch(0)[0][1]}
    assert all({int(i) for i in rows} <= start for rows in batches.indices[: len(start) // 8])


TINY = [
    "tokenizer=word", "sizes.vocabulary=300", "sizes.encoder=4", "sizes.decoder=8", "sizes.readout=6", "model.embedding_size=6",
    "batching.sentences=16", "search=greedy", "translation.max_length_offset=2", "decoder=luong", "attention=general",
    "max_validation=2", "metric=loss", "model.dropout=0.1",
]  # fmt: skip


def typed(folder, config="mix.yml", *more):
    return [
        "data=mix",
        f"data.config={folder}/{config}",
        f"data.validation={folder}/val.tsv",
        "data.source=en",
        "data.target=de",
        *TINY,
        *more,
    ]


@pytest.mark.parametrize(
    ("stored", "stored_part", "stops"),
    [
        ("memory", "disk", (9,)),
        pytest.param("memory", "memory", (9, 14, 23), marks=pytest.mark.exhaustive),
        pytest.param("disk", "disk", (9, 14, 23), marks=pytest.mark.exhaustive),
    ],
)
def test_a_mixture_resumes_bit_for_bit_at_any_update(
    folder, tmp_path, monkeypatch, stored, stored_part, stops
):
    """Stages, modifiers and tags included; the text ends before max_epochs does; text in memory is text on disk."""
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    (folder / "short.yml").write_text(FULL.replace("until dirty 5", "until clean 1"))
    more = [
        "data.tags={medium: '<m>'}",
        "trainer.max_epochs=20",
        "trainer.save_every=0",
    ]
    config = typed(folder, "short.yml", *more)
    whole = trained(tmp_path / "whole", *config, f"store={stored}")
    truth, end = ckpt.read(whole / ckpt.LAST), 0
    first = f"trainer.max_updates={stops[0]}"
    part = trained(tmp_path / "part", *config, f"store={stored_part}", first)
    for updates in (*stops[1:], 0):
        resumed(part, f"trainer.max_updates={updates}")
        end = ckpt.read(part / ckpt.LAST).meta["training"]["progress"]["update"]
    assert end == truth.meta["training"]["progress"]["update"]
    assert truth.meta["training"]["progress"]["finished"]
    result = ckpt.read(part / ckpt.LAST).part("model")
    for name, tensor in truth.part("model").items():
        assert (result[name] == tensor).all(), name
    written = (part / "results.json").stat().st_mtime_ns
    resumed(part, "metric=chrf", "max_validation=3")  # finished, so nothing is done
    assert (part / "results.json").stat().st_mtime_ns == written


FAULTS = {
    "stages: [start, mid, end]": (
        "stages: [start, mid, gone]",
        "stages: definition of gone not found",
    ),
    "  - clean 0.8": ("  - claen 0.8", "`claen 0.8`: corpus claen: not found"),
    "  - until clean 2   # two passes": (
        "  - until dirty 2",
        "the stage never ends, because the corpus dirty has no weight in this stage",
    ),
    "until medium 1": ("until medium inf", r"stage mid: never ends \(until medium inf\)"),
    "- UpperCase: 0.05": ("- Upper: 0.05", "modifier Upper: not found"),
    "- Noise: 0.0005": ("- Noise: 5", "probability 5 must be"),
    "  max_words: 6": ("  words: 6", "modifier Noise: setting words: not found"),
    "  char_swap: 0.1": ("  swap: 0.1", "modifier Typos: setting swap: not found"),
    "seed: 1111": ("seed: [", "cannot be read as YAML"),
    "  dirty: dirty\n": ("  dirty: dirty\n  clean: medium.tsv\n", "found duplicate key clean"),
    "- UpperCase: 0.05\n": ("- Tags: 0.1\n", "modifier Tags: not supported"),
    "num_fields: 2": ("num_fields: 3", "num_fields: must be 2"),
    "trainer: /usr/bin/cat": ("curriculum: x", "key curriculum: not found"),
    "  dirty: dirty": ("", "`dirty 0`: corpus dirty: not found"),
    "  - medium 0.2": ("  - medium 0.1\n  - medium 0.1", "a corpus is listed twice"),
}


@pytest.mark.parametrize("line", FAULTS)
def test_what_is_not_understood_is_refused_by_name(folder, line):
    assert line in FULL
    with pytest.raises(ValueError, match=FAULTS[line][1]):
        mix(folder, FULL.replace(line, FAULTS[line][0]))


@pytest.mark.parametrize("name", ["Tags", "Merge", "Retokenize"])
def test_missing_modifiers_of_opustrainer_are_refused_with_the_reason(name):
    with pytest.raises(UserError, match=f"modifier {name}: not supported, because the modifier "):
        modifier(name, 0.1, {})


def test_faults_are_reported_when_typed(folder):
    (folder / "wrong.yml").write_text(FULL.replace("until clean 2", "until gone 2"))
    result = run("train", *typed(folder, "wrong.yml"))
    assert result.returncode in (1, 2)
    assert (
        b"`until gone 2`: the stage never ends, because the corpus gone has no weight in this "
        b"stage" in result.stderr
    )
    (folder / "empty.tsv").write_text("\t\n")
    (folder / "hollow.yml").write_text(
        "datasets: {a: empty.tsv}\nstages: [s]\ns: [a 1, until a 1]\n"
    )
    result = run("train", *typed(folder, "hollow.yml"))
    assert result.returncode in (1, 2)
    assert b"corpus a: the filters dropped all" in result.stderr
    result = run("train", *typed(folder, "mix.yml", "batching.sentences=40"))
    assert result.returncode in (1, 2)
    assert (
        b"corpus medium: only 35 sentence pairs remain after filtering, fewer than one batch (40)"
        in result.stderr
    )
    assert "mix" in choices("data")


def test_a_trained_model_does_not_need_the_mixture(folder, tmp_path):
    config = folder / "moved.yml"
    config.write_text(FULL)
    run_dir = trained(tmp_path / "run", *typed(folder, "moved.yml", "trainer.max_updates=1"))
    config.unlink()
    nmt.load(run_dir)


def test_a_stored_mixture_is_the_same(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("NMT_CACHE", str(tmp_path))
    config = compose(*typed(folder))
    memory, disk = (loaded({**config, "store": wanted}, Filters()) for wanted in ("memory", "disk"))
    assert [*memory.train.source] == [*disk.train.source]
    assert [pairs.store is None for pairs in disk.mixture.corpora.values()] == [False] * 3


def test_tags_are_neither_filtered_nor_changed(folder):
    """Filters and modifiers see the text behind a tag."""
    filters = Filters(tags=("<m>",), drop_identical=True)
    assert filters.sift(["<m> X Y", "<m>  ", "<m> X", "X Y"], ["X Y", "a", "Y", "X Y"])[0] == [2]
    config = compose(*typed(folder, "mix.yml", "data.tags={medium: '<m>'}"))
    filters = filters_of(config)
    assert filters.tags == ("<m>",)
    splits = loaded(config, filters)
    stage = replace(
        splits.mixture.stages[0], weights={"medium": Fraction(1)}, until="medium", passes=None
    )
    for name, settings in (("UpperCase", {}), ("Prefix", {"min_words": 1})):
        changed = replace(stage, modifiers=[modifier(name, 1.0, settings)])
        data = prepare(
            replace(splits, mixture=replace(splits.mixture, stages=[changed])),
            filters,
            components.make(config, "tokenizer"),
        )
        mixing = Mixing(data.splits.mixture, data.kept, 1)
        batches = EpochBatches(data, components.make(config, "batching"), 1, 0, mixing=mixing)
        pairs = batches.modified_pairs(data.splits.train.select(batches.indices[0]), 0)
        assert all(
            line.startswith("<m> ") and not line.startswith("<m> <m>") for line in pairs.source
        )
        assert all(("__start__" in line) == (name == "Prefix") for line in pairs.source)


@pytest.mark.parametrize("tags", [["<a>", "<a> <b>"], ["<a> <b>", "<a>"]])
def test_a_tag_may_begin_another_tag(tags):
    assert tag_of("<a> <b> x", tags) == "<a> <b> "
    assert tag_of("<a> x", tags) == "<a> "
    assert tag_of("x <a> ", tags) == ""


def test_a_tag_of_null_is_no_tag(folder):
    for tags in ("{medium: null}", "{}"):
        config = compose(*typed(folder, "mix.yml", f"data.tags={tags}"))
        assert filters_of(config).tags == ()
        source = components.make(config, "data").load().mixture.corpora["medium"].source
        assert not any(line.startswith("None") for line in source)
    with pytest.raises(ValueError, match="data.tags.medium=1: must be text"):
        components.make(compose(*typed(folder, "mix.yml", "data.tags={medium: 1}")), "data")


def test_pairs_with_tags_are_also_training_pairs(folder):
    config = compose(*typed(folder, "mix.yml", "data.tags={medium: '<m>'}"))
    splits = loaded(config, filters_of(config))
    tagged = [i for i, line in enumerate(splits.train.source) if line.startswith("<m> ")]
    plain = Pairs(
        [splits.train.source[i].removeprefix("<m> ") for i in tagged[:3]],
        [splits.train.target[i] for i in tagged[:3]],
        "test",
    )
    splits = replace(splits, validation=plain, test=plain, more_validation={})
    assert held_out_in_training(splits) == {"validation": 3, "test": 3}
    kept = training_rows(splits, Filters(drop_held_out=True))
    assert not {*tagged[:3]} & {*kept}


def test_the_words_of_a_mixture_of_one_corpus_are_not_aligned(folder, tmp_path):
    (folder / "one.yml").write_text(
        "datasets: {medium: medium.tsv}\nstages: [all]\nall: [medium 1, until medium 1]\nmodifiers: [{UpperCase: 0.5}]\nnum_fields: 2\n"
    )
    more = ["objective.guided_alignment=0.5", "trainer.max_epochs=9", f"run_dir={tmp_path}/run"]
    failed(run("train", *typed(folder, "one.yml", *more)), "(data=mix) cannot be aligned")


def test_the_end_of_the_stages_is_warned_about(folder, tmp_path, caplog):
    (folder / "ends.yml").write_text(FULL.replace("until dirty 5", "until clean 1"))
    run_folder = trained(tmp_path / "run", *typed(folder, "ends.yml", "trainer.max_epochs=9"))
    log = (run_folder / "train.log").read_text()
    updates = json.loads((run_folder / "results.json").read_text())["updates"]
    assert f"the training has only {updates} updates" in log
    assert "lengthen the stages of the mixture" in log
    last = json.loads((run_folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert 2 < last["epoch"] < 2.05  # not 3, the number of epochs begun
    again = run("train", f"resume={run_folder}").stderr.decode()
    assert "the training is finished" in again
    assert "the last stage of data.config has ended" in again


PAIR = ("A man, 2 dogs see the apple.", "Ein Mann, 2 Hunde sehen den Apfel.")


def test_modifiers_by_hand():
    def made(name, pair=PAIR, **settings):
        return modifier(name, 1.0, settings)(pair, random.Random(3))

    assert made("UpperCase") == [
        ("A MAN, 2 DOGS SEE THE APPLE.", "EIN MANN, 2 HUNDE SEHEN DEN APFEL.")
    ]
    assert made("TitleCase")[0][0] == "A Man, 2 Dogs See The Apple."
    assert made("RemoveEndPunct") == [(PAIR[0][:-1], PAIR[1][:-1])]
    assert made("RemoveEndPunct", ("Ja.", "Yes!")) == [("Ja.", "Yes!")]
    assert made("RemoveEndPunct", ("猫。", "Cat.")) == [("猫", "Cat")]
    [copied, pair] = made("Noise", max_words=2)
    assert copied[0] == copied[1]
    assert pair == PAIR
    [(source, target)] = made("Prefix", min_words=2, max_words=3, template="<{trg}> ")
    words, rest = source[1:].split("> ")
    assert rest == PAIR[0]
    assert words in target
    assert 2 <= len(words.split()) <= 3
    [(source, target)] = made("Typos", char_swap=1.0)
    assert target == PAIR[1]
    assert sorted(source) == sorted(PAIR[0])
    draw = random.Random(3)
    swapped = {MISTAKES["char_swap"]("abcd", draw) for _ in range(100)}
    assert swapped == {"bacd", "acbd", "abdc"}
    near = {MISTAKES["nearby_char"]("g", draw) for _ in range(200)}
    assert near == set("rtyfhvbn")


def test_modifiers_draw_all_of_their_choices():
    draw = random.Random(3)
    words = PAIR[1].split()
    prefixes = [modifier("Prefix", 1.0, {})(PAIR, draw)[0][0] for _ in range(300)]
    starts = {text.removeprefix("__start__ ").split()[0] for text in prefixes}
    assert starts == set(words[:-1])
    noises = [modifier("Noise", 1.0, {"max_words": 3})(PAIR, draw)[0][0] for _ in range(100)]
    assert {len(text.split()) for text in noises} == {1, 2, 3}
    # With the default probability of 0.1 for each of 9 kinds, 0.9^9 of the lines have no typo;
    # a few kinds do not change this line.
    typos = [modifier("Typos", 1.0, {})(PAIR, draw)[0][0] for _ in range(2000)]
    share = sum(text == PAIR[0] for text in typos) / len(typos)
    assert 0.9**9 <= share <= 0.9**6


@pytest.mark.parametrize(("name", "settings"), [
    ("Prefix", {"min_words": 1.5}), ("Prefix", {"max_words": 10.5}), ("Prefix", {"template": ["{trg}"]}),
    ("Noise", {"max_words": 2.5}), ("Typos", {"char_swap": "x"}),
])  # fmt: skip
def test_settings_of_a_wrong_type_are_refused(name, settings):
    with pytest.raises(UserError, match=f"modifier {name}: "):
        modifier(name, 1.0, settings)


@pytest.mark.parametrize("kind", MISTAKES)
def test_mistakes_are_small_and_keep_other_scripts(kind):
    for text in (PAIR[0], "猫が好き", "", "x", "нет пробела"):
        for seed in range(20):
            wrong = MISTAKES[kind](text, random.Random(seed))
            assert abs(len(wrong) - len(text)) <= 1


@pytest.mark.parametrize("name", MODIFIERS)
def test_modifiers_act_as_often_as_they_are_asked_to(name):
    settings = {"unichar": 1.0} if name == "Typos" else {}
    one, draw = modifier(name, 0.3, settings), random.Random(5)
    changed = sum(applied([one], PAIR, draw) != [PAIR] for _ in range(2000))
    assert changed / 2000 == pytest.approx(0.3, abs=0.04)
    assert applied([modifier(name, 0.0, settings)], PAIR, draw) == [PAIR]


def test_some_lines_of_a_file(folder):
    splits = mix(folder, validation=f"{folder}/val.tsv@:4", test=f"{folder}/dirty@100:").load()
    assert (len(splits.validation), len(splits.test)) == (4, SIZES["dirty"] - 100)
    text = FULL.replace("dirty: dirty", 'dirty: "dirty@10:20"')
    assert len(mix(folder, text).load().mixture.corpora["dirty"]) == 10


@pytest.mark.parametrize("name", ["1", "1.5"])
def test_names_that_yaml_reads_as_numbers(folder, name):
    text = f"datasets: {{{name}: medium.tsv}}\nstages: [{name}]\n{name}: ['{name} 1', until {name} inf]\n"
    assert len(mix(folder, text).load().mixture.corpora) == 1


def test_tags_with_line_breaks_are_refused(folder):
    with pytest.raises(ValueError, match="data.tags.clean=.*must be text without line breaks"):
        mix(folder, tags={"clean": "a\nb"})


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("missing_char", "abc", {"bc", "ac", "ab"}),
        ("repeated_char", "ab!", {"aab!", "abb!"}),
        ("skipped_space", "a b  c d", {"ab  c d", "a b  cd"}),
        ("random_space", "abc d", {"a bc d", "ab c d"}),
        ("unichar", "hello bee", {"helo bee", "hello be"}),
        ("similar_char", "ol-", {"0l-", "o1-"}),
        ("extra_char", "q", {"qw", "qa", "qs"}),
        ("nearby_char", "P", {"O", "L"}),
        ("nearby_char", "m", {"n", "h", "j", "k"}),
    ],
)
def test_each_kind_of_mistake_by_hand(kind, text, expected):
    draw = random.Random(1)
    assert {MISTAKES[kind](text, draw) for _ in range(200)} == expected


def test_modified_pairs_are_never_empty():
    for name, pair, settings in (
        ("RemoveEndPunct", ("!", "!"), {}),
        ("RemoveEndPunct", ("Ja !", "!"), {}),
        ("Typos", ("x", "y"), {"missing_char": 1.0}),
    ):
        assert modifier(name, 1.0, settings)(pair, random.Random(1)) == [pair]
    pair = modifier("RemoveEndPunct", 1.0, {})(("Ja !", "Yes !"), random.Random(1))
    assert pair == [("Ja", "Yes")]


def test_limits_of_words_are_kept():
    draw = random.Random(1)
    words = " ".join(noise(("a", "b"), draw, 3, 4, 5)[0][0] for _ in range(100)).split()
    assert {*map(len, words)} == {3, 4}
    prefix = modifier("Prefix", 1.0, {"min_words": 2, "max_words": 4, "template": "{trg}|"})
    counts = {len(prefix(("s", "a b c"), draw)[0][0].split("|")[0].split()) for _ in range(50)}
    assert counts == {2, 3}
    assert prefix(("s", "a b"), draw) == [("a b|s", "a b")]
    assert prefix(("s", "a"), draw) == [("s", "a")]


def test_modifiers_act_one_after_another_on_all_pairs():
    several = [modifier("Noise", 1.0, {}), modifier("UpperCase", 1.0, {})]
    (source, target), pair = applied(several, ("ein Hund", "a dog"), random.Random(1))
    assert pair == ("EIN HUND", "A DOG")
    assert source == target == source.upper()


def test_corpora_of_equal_size_have_different_orders():
    corpora = {name: Pairs(["a"] * 50, ["b"] * 50, name) for name in ("one", "two")}
    half = Fraction(1, 2)
    stage = Stage("all", {"one": half, "two": half}, "one", None, ())
    plan = Mixing(Mixture(corpora, [stage]), np.arange(100), seed=1)
    [(_, rows)] = plan.epoch(0)
    one, two = rows[rows < 50], rows[rows >= 50] - 50
    assert sorted(one) == sorted(two)
    assert one.tolist() != two.tolist()
