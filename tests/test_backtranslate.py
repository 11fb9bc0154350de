"""nmt.backtranslate: every step is what the commands do by themselves, is done once, and is continued."""

import json
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from builders import trained
from commands import failed, run
from test_ranks import forks

from nmt import components
from nmt.configuration.compose import compose
from nmt.configuration.configure import configure
from nmt.configuration.training_settings import BacktranslateSettings
from nmt.pipeline.backtranslation import synthetic_pairs
from nmt.pipeline.backtranslation.real_pairs import write_real_pairs
from nmt.pipeline.backtranslation.steps import backtranslate
from nmt.pipeline.backtranslation.synthetic_pairs import read_translations
from nmt.storage import checkpoint as ckpt
from nmt.tokenizer.words import words

WORDS = ["haus", "katze", "hund", "ball", "rot", "blau", "alt", "neu", "der", "ein"]
SIZES = [
    "experiment=null", "sizes.encoder=8", "sizes.decoder=16", "sizes.readout=8", "model.embedding_size=8", "sizes.vocabulary=60",
    "batching.sentences=8", "trainer.max_epochs=2", "decoder=luong", "attention=dot",
]  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder, draw = tmp_path_factory.mktemp("text"), random.Random(1)
    for part, size in (("train", 40), ("val", 6), ("test", 6), ("more", 30)):
        rows = [draw.choices(WORDS, k=draw.choice((2, 3, 4))) for _ in range(size)]
        (folder / f"{part}.en").write_text("".join(" ".join(row) + "\n" for row in rows))
        (folder / f"{part}.de").write_text("".join(" ".join(reversed(row)) + "\n" for row in rows))
    parts = [
        f"data.{key}={folder}/{name}"
        for key, name in (("train", "train"), ("validation", "val"), ("test", "test"))
    ]
    return folder, ["data=text", *parts, "data.source=en", "data.target=de"]


def lines(file):
    return file.read_text().splitlines()


@pytest.fixture(scope="module")
def whole(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "out"
    result = run(
        "backtranslate", *text[1], *SIZES, f"synthetic.text={text[0]}/more.de", f"run_dir={folder}"
    )
    assert result.returncode == 0, result.stderr.decode()
    return folder


def best(folder):
    return {
        name: tensor.numpy().tobytes()
        for name, tensor in ckpt.read(folder / ckpt.BEST).part("model").items()
    }


def test_each_step_is_what_its_command_does(whole, text, tmp_path):
    """The reverse model is a run with the languages exchanged; the translations are its own; the model is a run on the mixture."""
    data = [
        f"data.{part}={text[0]}/{name}"
        for part, name in (("train", "train"), ("validation", "val"), ("test", "test"))
    ]
    reverse = trained(
        tmp_path / "reverse", "data=text", *data, "data.source=de", "data.target=en", *SIZES
    )
    assert best(reverse) == best(whole / "reverse")
    given = (
        f"model={reverse}",
        f"input={text[0]}/more.de",
        f"output={tmp_path}/out",
        "search=sample",
        "search.seed=1",
    )
    assert run("translate", *given).returncode == 0
    pairs = [*zip(lines(tmp_path / "out"), lines(text[0] / "more.de"), strict=True)]
    kept = [(source, target) for source, target in pairs if source.strip()]
    assert [*zip(lines(whole / "synthetic.en"), lines(whole / "synthetic.de"), strict=True)] == kept
    mixed = [
        f"data.config={whole}/mixture.yml",
        f"data.validation={text[0]}/val",
        f"data.test={text[0]}/test",
    ]
    model = trained(
        tmp_path / "model",
        "data=mix",
        *mixed,
        "data.source=en",
        "data.target=de",
        "data.tags={synthetic: '<back>'}",
        *SIZES,
    )
    assert best(model) == best(whole / "model")
    mixture = yaml.safe_load((whole / "mixture.yml").read_text())
    assert mixture["all"][1] == f"real {40 / len(kept):.9f}"
    assert json.loads((whole / "model" / "results.json").read_text())["part"] == "test"


def test_nothing_is_done_twice(whole, text):
    before = {
        path: path.stat().st_mtime_ns
        for path in whole.rglob("*")
        if path.is_file() and path.name != ".lock"
    }
    result = run(
        "backtranslate", *text[1], *SIZES, f"synthetic.text={text[0]}/more.de", f"run_dir={whole}"
    )
    assert result.returncode == 0, result.stderr.decode()
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_samples_are_drawn_with_the_seed_of_the_run(whole, text, tmp_path, monkeypatch):
    """`seed` of the command is `search.seed` of the translation; beam search has its width and no seed."""
    from nmt.pipeline.backtranslation import steps

    searches = []

    def translated(settings):
        searches.append(dict(settings.search))
        raise KeyboardInterrupt

    monkeypatch.setattr(steps, "translate", translated)
    typed = [*text[1], *SIZES, f"synthetic.text={text[0]}/more.de", "seed=7"]
    typed.append(f"synthetic.model={whole}/reverse")
    for kind in (["sample"], ["beam", "synthetic.width=3"]):
        given = [f"synthetic.search={kind[0]}", *kind[1:], f"run_dir={tmp_path}/{kind[0]}"]
        assert run("backtranslate", *typed, *given).returncode != 0
    sample, beam = searches
    assert sample["seed"] == 7
    assert beam["width"] == 3


@pytest.mark.exhaustive
def test_two_ranks_do_what_one_process_does(whole, text, tmp_path):
    """The translations of two ranks are those of one process with the same model."""
    words = [
        *text[1],
        *SIZES,
        f"synthetic.text={text[0]}/more.de",
        f"synthetic.model={whole}/reverse",
    ]
    one, two = tmp_path / "one", tmp_path / "two"
    assert run("backtranslate", *words, f"run_dir={one}").returncode == 0
    for _ in range(2):  # the second command finds everything finished
        statuses, printed = forks("nmt.backtranslate", *words, f"run_dir={two}")
        assert statuses == [0, 0], printed
    for name in ("translations", "synthetic.en", "synthetic.de", "corpus/train.en"):
        assert (two / name).read_bytes() == (one / name).read_bytes(), name
    assert ckpt.read(two / "model" / ckpt.LAST).meta["ranks"] == 2
    assert not (two / "translations.parts").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "step",
    [
        "nmt.pipeline.backtranslation.steps.write_synthetic_pairs",
        "nmt.pipeline.backtranslation.steps.train",
        "nmt.pipeline.backtranslation.steps.translate",
    ],
)
def test_what_was_interrupted_continues(step, whole, text, tmp_path, monkeypatch):
    """An interruption before, in the middle of, or after a step changes nothing in the end."""
    typed = [*text[1], *SIZES, f"synthetic.text={text[0]}/more.de", f"run_dir={tmp_path}/out"]

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(step, interrupted)
        assert run("backtranslate", *typed).returncode != 0
    if step == "nmt.pipeline.backtranslation.steps.train":  # in the middle of the first training
        from nmt.pipeline.run_training import train

        def stopped(settings):
            return train(
                type(settings).of(
                    {**settings.values, "trainer": {**settings.trainer, "stop_after": 1}}
                )
            )

        with monkeypatch.context() as patch:
            patch.setattr(step, stopped)
            assert run("backtranslate", *typed).returncode == 0
        assert not (tmp_path / "out/reverse/results.json").exists()
        assert (tmp_path / "out/reverse" / ckpt.LAST).exists()
    # Keys without effect on the weights may change.
    assert run("backtranslate", *typed, "trainer.log_every=3").returncode == 0
    assert "log_every: 3" in (tmp_path / "out/model/config.yaml").read_text()
    if step == "nmt.pipeline.backtranslation.steps.train":
        assert "log_every: 3" in (tmp_path / "out/reverse/config.yaml").read_text()
    for name in ("translations", "synthetic.en", "synthetic.de", "mixture.yml", "corpus/train.en"):
        assert (tmp_path / "out" / name).read_bytes() == (whole / name).read_bytes(), name
    assert best(tmp_path / "out/model") == best(whole / "model")


@pytest.mark.exhaustive
def test_distillation_translates_forwards(whole, text, tmp_path):
    """An ensemble translates the source side of the training pairs; only its translations are learnt from."""
    teachers = [
        trained(tmp_path / f"teacher{seed}", *text[1], *SIZES, f"seed={seed}") for seed in (1, 2)
    ]
    models = f"[{teachers[0]},{teachers[1]}]"
    wishes = (
        "synthetic.direction=forward",
        f"synthetic.model={models}",
        "synthetic.search=beam",
        "synthetic.real=0",
    )
    result = run("backtranslate", *text[1], *SIZES, *wishes, f"run_dir={tmp_path}/out")
    assert result.returncode == 0, result.stderr.decode()
    given = (
        f"model={models}",
        f"input={text[0]}/train.en",
        f"output={tmp_path}/translated",
        "search=beam",
        "search.width=5",
    )
    assert run("translate", *given).returncode == 0
    kept = [
        (s, t)
        for s, t in zip(lines(text[0] / "train.en"), lines(tmp_path / "translated"), strict=True)
        if t.strip()
    ]
    assert [
        *zip(
            lines(tmp_path / "out/synthetic.en"), lines(tmp_path / "out/synthetic.de"), strict=True
        )
    ] == kept
    assert "real" not in (tmp_path / "out/mixture.yml").read_text()
    assert not (tmp_path / "out/reverse").exists()


def _new_pairs(real, written):
    """The pairs of all translations of the real pairs (direction, file) in order, each new pair once."""
    expected = []
    for direction, file in written:
        for (source, target), (translation, _) in zip(real, read_translations(file), strict=True):
            pair = (source, translation) if direction == "forward" else (translation, target)
            if translation.strip() and pair not in real and pair not in expected:
                expected.append(pair)
    return expected


def test_diversification_adds_the_translations_of_both_sides(text, tmp_path):
    """Each model is a run on the real pairs; the pairs are all new pairs of all models; the final model has as many updates."""
    folder = tmp_path / "out"
    typed = [*text[1], *SIZES, "synthetic.direction=both", "synthetic.models=2", "seed=4"]
    typed += ["synthetic.search=sample", "synthetic.top_k=5", f"run_dir={folder}"]
    typed += ["trainer.log_every=1", "trainer.patience=50"]
    result = run("backtranslate", *typed)
    assert result.returncode == 0, result.stderr.decode()
    data = [a for a in text[1] if not a.startswith(("data.source", "data.target"))]
    turned = ["data.source=de", "data.target=en"]
    alone = trained(tmp_path / "alone", *data, *turned, *SIZES, "seed=6")
    assert best(alone) == best(folder / "backward-2")
    real = [*zip(lines(text[0] / "train.en"), lines(text[0] / "train.de"), strict=True)]
    written = [
        (direction, folder / f"translations-{direction}-{number}")
        for number in (1, 2)
        for direction in ("forward", "backward")
    ]
    expected = _new_pairs(real, written)
    synthetic = [lines(folder / f"synthetic.{language}") for language in ("en", "de")]
    assert [*zip(*synthetic, strict=True)] == expected
    assert len(expected) > 100
    results = [
        json.loads((folder / name / "results.json").read_text()) for name in ("forward-1", "model")
    ]
    assert results[0]["updates"] == results[1]["updates"] == 2 * 40 / 8
    assert {result["part"] for result in results} == {"test"}
    shutil.rmtree(folder / "forward-1")  # may be deleted after the end
    assert run("backtranslate", *typed).returncode == 0


def test_names_of_languages_may_have_a_dot(tmp_path, monkeypatch):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "train.tok.en").write_text("a\nb\n")
    (tmp_path / "corpus" / "train.tok.de").write_text("x\ny\n")
    monkeypatch.setattr(
        synthetic_pairs, "_selected", lambda plan, pairs: iter([("a", "x"), ("a", "z")])
    )
    corpus = SimpleNamespace(languages=("tok.en", "tok.de"), pairs=2)
    synthetic = SimpleNamespace(direction="both", keep=1.0, real=1.0)
    plan = SimpleNamespace(
        folder=tmp_path, corpus=corpus, translators=[None], synthetic=synthetic,
        settings=SimpleNamespace(batching={}),
    )  # fmt: skip
    synthetic_pairs.write_synthetic_pairs(plan)
    assert lines(tmp_path / "synthetic.tok.de") == ["z"]


def test_diversification_with_given_models(whole, text, tmp_path):
    """Each model translates its source side; nothing else is trained, and updates are those of the real pairs.
    Copied pairs are added in every training, and never translated."""
    for name, languages in {
        "forward": ("en", "de"),
        "backward": ("de", "en"),
        "other": ("de", "fr"),
    }.items():
        data = [a for a in text[1] if not a.startswith(("data.source", "data.target"))]
        sides = [f"data.source={languages[0]}", f"data.target={languages[1]}"]
        if name == "other":
            shutil.copy(text[0] / "train.en", text[0] / "train.fr")
            shutil.copy(text[0] / "val.en", text[0] / "val.fr")
            data = [a for a in data if not a.startswith("data.test")]
        trained(tmp_path / name, *data, *sides, *SIZES, "copied_pairs=0.5")
    folder = tmp_path / "out"
    typed = [
        *text[1],
        *SIZES,
        "synthetic.direction=both",
        "synthetic.search=greedy",
        "synthetic.real=0.1",
        "copied_pairs=0.5",
        f"run_dir={folder}",
    ]
    failed = run("backtranslate", *typed, f"synthetic.model=[{tmp_path}/forward,{tmp_path}/other]")
    assert "needs models between data.source and data.target" in failed.stderr.decode()
    failed = run("backtranslate", *typed, f"synthetic.model={tmp_path}/forward")
    assert "all models translate from en to de" in failed.stderr.decode()
    models = f"synthetic.model=[{tmp_path}/backward,{tmp_path}/forward]"
    result = run("backtranslate", *typed, models)
    assert result.returncode == 0, result.stderr.decode()
    real = [*zip(lines(text[0] / "train.en"), lines(text[0] / "train.de"), strict=True)]
    written = [("backward", folder / "translations-1"), ("forward", folder / "translations-2")]
    expected = _new_pairs(real, written)
    synthetic = [lines(folder / f"synthetic.{language}") for language in ("en", "de")]
    assert [*zip(*synthetic, strict=True)] == expected
    assert not [*folder.glob("forward-*"), *folder.glob("backward-*")]
    usual = json.loads((tmp_path / "forward" / "results.json").read_text())["updates"]
    updates = json.loads((folder / "model" / "results.json").read_text())["updates"]
    assert updates == usual == 2 * 8  # two epochs of 60 pairs
    every = yaml.safe_load((folder / "model/config.yaml").read_text())["trainer"]["validate_every"]
    assert every * (len(expected) + len(real)) == pytest.approx(
        len(real)
    )  # one epoch of real pairs


def test_the_most_probable_are_kept(whole, text, tmp_path):
    """By log-probability per word, a share; the model that translates may be given."""
    wishes = (
        f"synthetic.text={text[0]}/more.de",
        f"synthetic.model={whole}/reverse",
        "synthetic.keep=0.5",
        "synthetic.tag=null",
    )
    assert (
        run("backtranslate", *text[1], *SIZES, *wishes, f"run_dir={tmp_path}/out").returncode == 0
    )
    assert (tmp_path / "out/translations").read_bytes() == (whole / "translations").read_bytes()
    scored = []
    for line, source in zip(lines(whole / "translations"), lines(text[0] / "more.de"), strict=True):
        _, translation, log_prob, _ = line.split(" ||| ")
        if translation.strip():
            scored.append(
                (
                    float(log_prob.split("= ")[1]) / (len(translation.split()) + 1),
                    translation,
                    source,
                )
            )
    kept = [
        *zip(
            lines(tmp_path / "out/synthetic.en"), lines(tmp_path / "out/synthetic.de"), strict=True
        )
    ]
    assert 0.4 * len(scored) <= len(kept) <= 0.6 * len(scored)
    worst = min(score for score, *pair in scored if tuple(pair) in kept)
    assert all(score <= worst for score, *pair in scored if tuple(pair) not in kept)


@pytest.mark.parametrize(("wishes", "message"), [
    ([], "synthetic.text: required for back-translation"),
    (["synthetic.text=nowhere.de"], "nowhere.de: file not found"),
    (["synthetic.direction=forward"], "synthetic.model: required for synthetic.direction=forward"),
    (["synthetic.text=a", "synthetic.width=9"], "synthetic.width=9: has no effect in this configuration"),
    (["synthetic.text=a", "synthetic.keep=0"], "synthetic.keep=0: must be above 0"),
    (["synthetic.text=a", "synthetic.tag=' '"], "synthetic.tag: must be a non-empty"),
    (["synthetic.text=a", "data.factors=[pos]"], "back-translation supports only one source text per sentence pair"),
    (["synthetic.text=a", "-m", "seed=1,2"], "not supported by nmt.backtranslate"),
    (["synthetic.text=a", "resume=x"], "resume"),
    (["synthetic.text=a", "synthetic.direction=both"], "not supported with synthetic.direction=both"),
    (["synthetic.model=a", "synthetic.models=2", "synthetic.direction=both"], "synthetic.model gives trained models"),
    (["synthetic.text=a", "synthetic.models=2"], "needs synthetic.direction=both"),
    (["synthetic.text=a", "objective.guided_alignment=0.5"], "trained on a mixture of corpora, which cannot be aligned"),
    (["synthetic.text=a", "data.target=de/AT"], "data.target=de/AT: back-translation writes files with this name"),
    (["synthetic.text=a", "model.lexical=true", "model.lexicon=absent.txt"], "absent.txt: file not found"),
])  # fmt: skip
def test_what_does_not_fit_is_named(wishes, message, text, tmp_path):
    failed(run("backtranslate", *text[1], *SIZES, *wishes, f"run_dir={tmp_path}/out"), message)


@pytest.mark.exhaustive
def test_what_is_removed_is_made_again(whole, text, tmp_path):
    """Files of the steps, but not the last one; and a text that has changed is refused, not put beside the old translations."""
    folder = tmp_path / "out"
    shutil.copytree(whole, folder)
    (tmp_path / "more.de").write_bytes((text[0] / "more.de").read_bytes())
    notes = json.loads((folder / "backtranslation.json").read_text())
    notes["settings"]["synthetic.text"] = str(tmp_path / "more.de")
    (folder / "backtranslation.json").write_text(json.dumps(notes))
    typed = [*text[1], *SIZES, f"synthetic.text={tmp_path}/more.de", f"run_dir={folder}"]
    for name in ("model", "corpus"):
        shutil.rmtree(folder / name)
    for name in ("synthetic.de", "translations"):
        (folder / name).unlink()
    assert run("backtranslate", *typed).returncode == 0
    for name in ("translations", "synthetic.en", "synthetic.de", "corpus/train.de"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    assert best(folder / "model") == best(whole / "model")
    (folder / "corpus/train.de").unlink()
    assert run("backtranslate", *typed).returncode == 0
    assert (folder / "corpus/train.de").read_bytes() == (whole / "corpus/train.de").read_bytes()
    shutil.rmtree(folder / "model")
    (folder / "translations").write_bytes((whole / "translations").read_bytes()[:200])
    failed(
        run("backtranslate", *typed),
        "translations: the existing file has 3 lines, expected 30",
        "Delete this output, or choose another",
    )
    (tmp_path / "more.de").write_text(
        "".join(reversed((text[0] / "more.de").read_text().splitlines(keepends=True)))
    )
    failed(run("backtranslate", *typed), "the file has changed since the back-translation in")
    (folder / "backtranslation.json").write_text("{")
    failed(run("backtranslate", *typed), "backtranslation.json: damaged")


def test_the_model_that_translates_fits(whole, text, tmp_path):
    typed = [*text[1], *SIZES, f"synthetic.text={text[0]}/more.de", f"run_dir={tmp_path}/out"]
    failed(
        run("backtranslate", *typed, f"synthetic.model={whole}/model"),
        "translates from en to de, but synthetic.direction=backward needs a model from de to en",
    )
    failed(
        run("backtranslate", *typed, "synthetic.model=nowhere"),
        "synthetic.model=nowhere: file or folder not found",
    )
    failed(
        run("backtranslate", *typed, "synthetic.model=[]"),
        "synthetic.model=[]: give a run folder",
    )
    failed(
        run("backtranslate", *text[1], f"init={whole}/model", *typed[-2:]),
        "not the reverse model",
    )
    assert not (tmp_path / "out").exists()
    failed(
        run("backtranslate", *typed[:-1], "run_dir=/proc/nmt"),
        "run_dir=/proc/nmt: cannot be written",
    )
    teacher = "objective=distillation", f"objective.teacher={whole}/reverse"
    failed(
        run("train", *text[1], "experiment=null", *teacher, f"run_dir={tmp_path}/student"),
        "opposite to the student",
    )


@pytest.mark.parametrize(
    ("content", "message"), [(b"\n \n", "contains no words"), (b"haus\n\xff\n", "line 2")]
)
def test_a_text_that_cannot_be_used_is_refused_before_anything_is_trained(
    content, message, text, tmp_path
):
    (tmp_path / "bad.de").write_bytes(content)
    typed = f"synthetic.text={tmp_path}/bad.de", f"run_dir={tmp_path}/out"
    failed(run("backtranslate", *text[1], *SIZES, *typed), message)
    assert not [*(tmp_path / "out").iterdir()]


def test_a_text_of_less_than_a_batch_is_refused_before_anything_is_trained(text, tmp_path):
    (tmp_path / "few.de").write_text("haus\nkatze\n")
    typed = f"synthetic.text={tmp_path}/few.de", f"run_dir={tmp_path}/out"
    failed(
        run("backtranslate", *text[1], *SIZES, *typed),
        "few.de: gives only 2 synthetic pairs, fewer than one batch (8)",
    )
    assert not [*(tmp_path / "out").iterdir()]


def test_real_pairs_of_less_than_a_batch_are_refused_before_anything_is_trained(text, tmp_path):
    typed = (
        f"synthetic.text={text[0]}/more.de",
        "batching.sentences=25",
        "data.train=" + f"{text[0]}/train@:20",
    )
    given = [*text[1], *SIZES, *typed, f"run_dir={tmp_path}/out"]
    failed(
        run("backtranslate", *given),
        "only 20 sentence pairs, fewer than one batch (25); lower batching.sentences, or set synthetic.real=0",
    )
    assert not [*(tmp_path / "out").iterdir()]


def test_held_out_pairs_are_not_translated(text, tmp_path):
    """Translations of held-out pairs differ from these pairs, so the last training would not drop them."""
    for name in ("en", "de"):
        copied = lines(text[0] / f"train.{name}")[:5]
        (tmp_path / f"test.{name}").write_text("".join(f"{line}\n" for line in copied))
    typed = [f"data.test={tmp_path}/test", "synthetic.direction=both", "filters.drop_held_out=true"]
    settings = configure("backtranslate", [*text[1], *SIZES, *typed, f"run_dir={tmp_path}/out"])
    (tmp_path / "out").mkdir()
    synthetic = components.make(settings.values, "synthetic")
    for _ in range(2):  # the second call reads the record of the first
        write_real_pairs(settings, synthetic, tmp_path / "out")
    sides = [lines(tmp_path / "out" / "corpus" / f"train.{name}") for name in ("en", "de")]
    held_out = [lines(tmp_path / f"test.{name}") for name in ("en", "de")]
    assert len(sides[0]) >= 30
    assert not {*zip(*sides, strict=True)} & {*zip(*held_out, strict=True)}


class Reached(Exception):
    pass


@pytest.mark.exhaustive
def test_what_belongs_to_a_language_is_turned_round_with_it(text, tmp_path, monkeypatch):
    """Vectors, tokenizers and the metric's words of the model that translates backwards."""
    asked = []

    (tmp_path / "en-de.tsv").touch()

    def train(settings):
        asked.append(settings)
        raise Reached

    typed = [
        *text[1], *SIZES, f"synthetic.text={text[0]}/more.de", f"run_dir={tmp_path}/out", "vectors=[a.vec,b.vec]", "model.tying=none",
        "freeze=[source_embedding,encoder]",
        "tokenizer=file", "tokenizer.model=a.model", "tokenizer.target=b.model", "metric.tokenize=zh",
        f"model.lexicon={tmp_path}/en-de.tsv",
    ]  # fmt: skip
    values = compose("backtranslate", typed)
    monkeypatch.setattr("nmt.pipeline.backtranslation.steps.train", train)
    with pytest.raises(Reached):
        backtranslate(BacktranslateSettings(**values))
    [reverse] = asked
    assert reverse.vectors == ["b.vec", "a.vec"]
    assert reverse.freeze == ["target_embedding", "encoder"]
    assert (reverse.tokenizer["model"], reverse.tokenizer["target"]) == ("b.model", "a.model")
    assert reverse.metric["tokenize"] == "auto"
    assert reverse.model["lexicon"] == "auto"
    assert (reverse.data["source"], reverse.data["target"]) == ("de", "en")


def test_words_of_scripts_without_spaces_are_counted(tmp_path):
    (tmp_path / "found").write_text(
        "0 ||| 我喜欢猫 ||| logprob= -4.0 ||| -4.0\n1 |||  ||| logprob= -1.0 ||| -1.0\n"
    )
    (_, score), empty = read_translations(tmp_path / "found")
    assert score == -4.0 / (len(words("我喜欢猫")) + 1)
    assert len(words("我喜欢猫")) > 1
    assert empty == ("", float("-inf"))


def test_a_folder_has_one_purpose(whole, text, tmp_path):
    typed = [*text[1], *SIZES, f"synthetic.text={text[0]}/more.de"]
    failed(run("backtranslate", *typed, "seed=2", f"run_dir={whole}"), "created with seed=1, not 2")
    failed(
        run("backtranslate", *typed, "synthetic.tag=null", f"run_dir={whole}"),
        "synthetic.tag=<back>, not null",
    )
    file = text[0] / "train.en"
    content = file.read_text()
    file.write_text(content.replace(content[0], content[0].upper(), 1))
    failed(run("backtranslate", *typed, f"run_dir={whole}"), "the data has changed since")
    file.write_text(content)
    (tmp_path / "notes.txt").write_text("mine")
    failed(
        run("backtranslate", *typed, f"run_dir={tmp_path}"),
        "contains notes.txt, which nmt.backtranslate did not create",
    )
    failed(run("backtranslate", *typed, "run_dir=null"), "run_dir: must be set to a folder")
    (tmp_path / "notes.txt").unlink()
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "train.en").write_text("mine\n")
    failed(run("backtranslate", *typed, f"run_dir={tmp_path}"), "contains corpus, which")
    assert (tmp_path / "corpus" / "train.en").read_text() == "mine\n"


def test_further_validation_sets_keep_their_lines(text, tmp_path):
    """Further sets may have the name of another set, a folder in their name, or some lines of a file."""
    folder, _ = text
    for name in ("b/test", "b/validation", "c/validation"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        for side in ("en", "de"):
            (tmp_path / f"{name}.{side}").write_text(f"{name}\n" * 3)
    further = [
        f"{tmp_path}/b/test",
        f"{tmp_path}/b/validation",
        f"{tmp_path}/c/validation",
        f"{folder}/test@:2",
    ]
    data = [
        "data=text", f"data.train={folder}/train", f"data.validation=[{folder}/val,{','.join(further)}]",
        f"data.test={folder}/test", "data.source=[en]", "data.target=de", f"synthetic.text={folder}/more.de",
    ]  # fmt: skip
    settings = configure("backtranslate", [*data, *SIZES, f"run_dir={tmp_path}/out"])
    (tmp_path / "out").mkdir()
    corpus = write_real_pairs(
        settings, components.make(settings.values, "synthetic"), tmp_path / "out"
    )
    assert lines(tmp_path / "out/corpus/test.de") == lines(folder / "test.de")
    sets = [lines(Path(f"{path}.de")) for path in corpus.beside]
    assert sets == [
        ["b/test"] * 3,
        ["b/validation"] * 3,
        ["c/validation"] * 3,
        lines(folder / "test.de")[:2],
    ]
