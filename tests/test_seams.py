"""Seams for later parts: wrappers of networks, states of searches, text that is read on demand, threads."""

import copy
import threading

import pytest
import torch
from builders import batch, compose, network
from torch.nn.parallel import DistributedDataParallel

import nmt
from nmt import components
from nmt.configuration.compose import compose as composed
from nmt.data import Pairs, Splits
from nmt.data.filters import Filters, fingerprint
from nmt.data.lazy_text import Selection
from nmt.data.preparation import prepare
from nmt.foundation.interfaces import SearchState
from nmt.inference.parallel import parallel_map
from nmt.search.greedy import Greedy
from nmt.training.objective.cross_entropy import CrossEntropy
from nmt.training.objective.scheduled_sampling import ScheduledSampling


@pytest.fixture
def one_process(tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    "objective", [CrossEntropy(label_smoothing=0.1), ScheduledSampling(decay="constant", start=0.5)]
)
@pytest.mark.parametrize("decoder", ["luong", "bahdanau", "luong_feed", "fixed"])
def test_objectives_go_through_a_wrapper(one_process, decoder, objective):
    """DistributedDataParallel sees all that an objective does: same loss, same gradients."""
    plain = network(decoder, "none" if decoder == "fixed" else "general")
    plain.train()
    wrapped = DistributedDataParallel(copy.deepcopy(plain))
    losses = []
    for each in (plain, wrapped):
        torch.manual_seed(3)
        loss = each(objective, batch(), 0)
        loss.total.backward()
        losses.append(loss.total.detach())
    torch.testing.assert_close(losses[1], losses[0])
    for ours, theirs in zip(wrapped.module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("decoder", ["luong", "bahdanau", "luong_feed", "fixed"])
def test_states_are_what_searches_carry(decoder):
    model, data = network(decoder, "none" if decoder == "fixed" else "dot"), batch()
    state = model.decoder.initial(model.encode(data.source, data.source_lengths))
    assert isinstance(state, SearchState)
    assert not isinstance(object(), SearchState)


class OnDemand(Selection):
    """A text that is never held: each line is made when it is asked for."""

    def __init__(self, size):
        super().__init__([], [])
        self.size, self.asked = size, 0

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(self.size))]
        if not 0 <= i < self.size:
            raise IndexError(i)
        self.asked += 1
        return " ".join("abcdefgh"[(i * k) % 8] for k in range(1, 3 + i % 5))


def test_text_may_be_read_when_asked_for():
    """Filtering, tokenizer, encoding and fingerprint accept any sequence of lines."""
    lazy, small = Pairs(OnDemand(60), OnDemand(60), "lazy"), Pairs(OnDemand(5), OnDemand(5), "lazy")
    stored = Pairs(list(lazy.source), list(lazy.target), "lazy")
    tokenizer = components.make(compose("tokenizer=char"), "tokenizer")
    ours, theirs = (
        prepare(Splits(pairs, small, None, ("a", "b")), Filters(drop_duplicates=True), tokenizer)
        for pairs in (lazy, stored)
    )
    assert ours.train.source.ids.tolist() == theirs.train.source.ids.tolist()
    assert ours.kept.tolist() == theirs.kept.tolist()
    assert fingerprint(lazy) == fingerprint(stored)


def test_a_translation_encodes_once(small_run, monkeypatch):
    """Probabilities and attention come with the translation: the encoder reads every sentence once."""
    translator = nmt.load(small_run)
    read = []
    [model] = translator.models
    encode = model.encode
    monkeypatch.setattr(
        model, "encode", lambda ids, *more: (read.append(len(ids)), encode(ids, *more))[1]
    )
    lines = ["a b c", "d e", "", "f g h i"]
    result = translator.translations(lines, details_of=2)
    assert sum(read) == 3
    forced = translator.force(
        [t.source for t in result if t.hypotheses],
        [t.hypotheses[0].tokens for t in result if t.hypotheses],
    )
    for translation, again in zip([t for t in result if t.hypotheses], forced, strict=True):
        assert translation.details[0].log_prob == pytest.approx(
            translation.hypotheses[0].log_prob, abs=1e-4
        )
        assert translation.details[0].weights == pytest.approx(again.weights, abs=1e-5)
    assert result[2].details == []


def test_calls_leave_the_process_as_it_was(small_run):
    """Number of threads, and the mode of the network; from four threads at once too."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        translator = nmt.load(small_run, search=Greedy(), batch_tokens=20)
        lines = [" ".join("abcdefghij"[: 1 + i % 5]) for i in range(10)]
        expected = translator.translate(lines)
        result = {}
        threads = [
            threading.Thread(target=lambda i=i: result.update({i: translator.translate(lines)}))
            for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [result[i] for i in range(4)] == [expected] * 4
        assert torch.get_num_threads() == 4
        seen = []
        other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        other.start()
        other.join()
        assert seen == [4]
        assert not translator.models[0].training
        translator.models[0].train()
        with pytest.raises(ValueError, match="call model.eval"):
            translator.translate(["a"])
        assert translator.models[0].training
    finally:
        torch.set_num_threads(before)


def test_a_worker_multiplies_with_its_share_of_threads():
    """The first product of a worker keeps the number, whatever the process's has become meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)

    def work(_):
        torch.randn(300, 300) @ torch.randn(300, 300)
        torch.randn(10**6).exp()
        return torch.get_num_threads()

    try:
        assert set(parallel_map(work, range(8), torch.device("cpu"))) == {1}
    finally:
        torch.set_num_threads(before)


def test_workers_share_the_threads_and_keep_the_order():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        cpu, alive = torch.device("cpu"), threading.active_count()
        seen = list(
            parallel_map(
                lambda n: (n, torch.get_num_threads(), threading.current_thread().name),
                range(9),
                cpu,
            )
        )
        assert [n for n, _, _ in seen] == list(range(9))
        assert {count for _, count, _ in seen} == {1}
        assert all(name.startswith("nmt") for _, _, name in seen)
        here = threading.current_thread().name
        assert list(parallel_map(lambda n: threading.current_thread().name, [1], cpu)) == [here]
        assert threading.active_count() == alive  # no thread is left
        with pytest.raises(ZeroDivisionError):
            list(parallel_map(lambda n: 1 // n, [1, 0, 2], cpu))
    finally:
        torch.set_num_threads(before)


def test_building_a_trainer_changes_no_configuration():
    """The precision that a processor can do is chosen where the trainer is made, not written into it later."""
    config = composed("train", ["trainer.precision=bfloat16"])
    assert components.make(config, "trainer").precision == "bfloat16"
    assert config["trainer"]["precision"] == "bfloat16"
