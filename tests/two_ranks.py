"""One of the two processes of tests/test_ranks.py: torchrun --nproc-per-node=2 tests/two_ranks.py FILE

Every network is trained twice for the same updates: by both ranks together, and by the first alone with accumulation. The first
writes how far the two are from each other."""

import gc
import json
import sys
import weakref
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from builders import batch, choices, compose, network, with_pictures

from nmt import components
from nmt.data.labels import LabelSet
from nmt.foundation.errors import Stopped, UserError
from nmt.foundation.interfaces import TextBatch
from nmt.foundation.ranks import ALONE
from nmt.foundation.torchrun import of_torchrun, together
from nmt.inference.candidates import Candidates
from nmt.metric import Metric
from nmt.model.seq2label import label_loss
from nmt.training import schedule
from nmt.training.callback import Callback
from nmt.training.objective.cross_entropy import CrossEntropy
from nmt.training.objective.minimum_risk import MinimumRisk
from nmt.training.objective.r_drop import RDrop
from nmt.training.objective.scheduled_sampling import ScheduledSampling
from nmt.training.task import Task, Validation, never
from nmt.training.trainer import Trainer

UPDATES = 5


class Fixed(list):
    def read(self, indices):
        return (self[i] for i in indices)


class Known(Task):
    command, unit, metric, title, seed = "train", "tokens", "loss", "", 3
    better = Metric(name="loss").better
    introduction = test = draw = next_commands = None

    def __init__(self, network, batches, objective, ranks):
        self.network, self.fixed, self.objective_, self.ranks = (
            network,
            Fixed(batches),
            objective,
            ranks,
        )

    def objective(self, network, batch, update, total):
        return self.objective_(network, batch, update, total)

    def batches(self, epoch):
        return self.fixed

    def validate(self, interrupted=never):
        return Validation(metrics={"loss": 1.0})


class Nowhere:
    def save_last(self, *_): ...

    save_best = save_last


class Losses(Callback):
    def __init__(self):
        self.found = []

    def on_update(self, update):
        self.found.append(update.loss)


def losses(make, batches, objective, ranks, **settings):
    """Losses of all updates, the weights in the end, and their moving average."""
    net, watch = make().train(), Losses()
    accumulate = 1 if ranks.several else 2
    trainer = Trainer(
        max_epochs=UPDATES,
        max_updates=UPDATES,
        accumulate=accumulate,
        log_every=1,
        validate_every=UPDATES,
        **settings,
    )
    task = Known(net, batches, objective, ranks)
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=1e-2)
    if settings.get("shard") and ranks.several:
        optimizer = ranks.sharded(optimizer)
    trainer.fit(
        task, optimizer=optimizer, schedule=schedule.Constant(), store=Nowhere(), callbacks=[watch]
    )
    return watch.found, [p.detach() for p in net.parameters()]


def farthest(a, b):
    return max(float((x - y).abs().max()) for x, y in zip(a, b, strict=True))


def compared(name, ranks, make, batches, objective, **settings):
    mine, weights = losses(make, batches, objective, ranks, **settings)
    everyone = ranks.gather([w.double() for w in weights])
    result = {"between ranks": farthest(*everyone)}
    if ranks.first:
        alone, same = losses(make, batches, objective, ALONE, **settings)
        result |= {
            "updates": len(mine), "losses": max(abs(a - b) for a, b in zip(mine, alone, strict=True)), "weights": farthest(weights, same),
        }  # fmt: skip
    ranks.wait()
    return {name: result}


def words():
    """Five batches, so that in the last update of an epoch one rank has none."""
    return [
        batch((5, 3, 4), (4, 6, 2)),
        batch((2,), (3,)),
        batch((4, 4), (5, 2)),
        batch((6,), (2,)),
        batch((3, 5), (4, 4)),
    ]


def risk():
    """Three candidates a sentence, and a figure that depends on them."""
    settings_of_metric = {"tokenize": "none", "lowercase": False, "char_order": 6}
    generator = Candidates(
        lambda rows: [" ".join(map(str, row)) for row in rows],
        max_length_factor=1.0,
        max_length_offset=2,
        metric_settings=settings_of_metric,
    )
    return MinimumRisk(candidates=3, cost="chrf", candidate_generator=generator)


def main(file):
    torch.set_num_threads(1)
    result = {}
    try:
        measure(result)
    except Stopped:
        result["kept threads"] = group_threads()
    gc.collect()
    result["kept group"] = result["kept group"]() is not None
    if of_torchrun().first:
        Path(file).write_text(json.dumps(result))


def measure(result):
    """Figures of all networks. Ends as a training that is stopped while its frames hold a network."""
    dropout = ["model.dropout=0.2", "model.readout_dropout=0.2"]
    with together(False) as ranks:
        for decoder in choices("decoder"):
            attention = "none" if decoder == "fixed" else "concat"
            for kind, objective in (
                ("cross_entropy", CrossEntropy()),
                ("scheduled_sampling", ScheduledSampling()),
                ("minimum_risk", risk()),
                ("r_drop", RDrop()),
            ):
                make = lambda d=decoder, a=attention: network(d, a, *dropout)  # noqa: E731
                result |= compared(f"{decoder} {kind}", ranks, make, words(), objective)
        make = lambda: network("bahdanau", "concat", *dropout).float()  # noqa: E731
        result |= compared("float32", ranks, make, words(), CrossEntropy(), ema=0.9, clip_norm=0.5)
        make = lambda: network("luong_feed", "general", *dropout)  # noqa: E731
        result |= compared("sharded", ranks, make, words(), CrossEntropy(), ema=0.9, shard=True)
        hard = lambda: network("luong", "general", "window=hard", "window.estimator=reinforce")  # noqa: E731
        result |= compared("reinforce", ranks, hard, words(), CrossEntropy())
        pictures = [with_pictures(one, 4) for one in words()]
        seen = lambda: network("luong", "general", "encoder=grid", "encoder.channels=4").float()  # noqa: E731
        result |= compared("pictures", ranks, seen, pictures, CrossEntropy())
        result |= compared(
            "texts",
            ranks,
            classifier,
            documents(),
            lambda network, batch, *_: label_loss(network, batch),
        )
        try:
            ranks.agree("configuration", ranks.number, "start all ranks with the same command")
        except UserError as error:
            result["disagreement"] = str(error)
        result["whole"] = ranks.whole(ranks.share([*range(7)]))
        claimed = ["".join(ranks.claimed("abcdef", name)) for name in ("first", "second")]
        parts = zip(*ranks.gather(claimed), strict=True)
        result["claimed"] = ["".join(sorted("".join(letters))) for letters in parts]
        result["of the first"] = ranks.of_first(ranks.number)
        result["sums"] = ranks.sums(ranks.number, 0.5)
        result["kept group"] = weakref.ref(torch.distributed.group.WORLD)
        train_and_stop(ranks.wrapped(network("luong", "general")))


def train_and_stop(wrapped):
    sum(parameter.sum() for parameter in wrapped.parameters()).backward()
    assert "pt_gloo_runloop" in group_threads()
    raise Stopped


def group_threads():
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if "gloo" in name]


def classifier():
    config = compose(
        "sizes.encoder=4", "network.embedding_size=6", "network.dropout=0.2", name="classify"
    )
    torch.manual_seed(1)
    return components.classifier(config, 11, LabelSet(("a", "b"), False)).double()


def documents():
    """Three batches of labelled texts."""
    draw, made = torch.Generator().manual_seed(1), []
    for size in (4, 6, 3):
        labels = torch.zeros(3, 2, dtype=torch.bool)
        labels[torch.arange(3), torch.randint(0, 2, (3,), generator=draw)] = True
        tokens = torch.randint(4, 11, (3, size), generator=draw)
        made.append(
            TextBatch(tokens, torch.full((3,), size), torch.ones(3, dtype=torch.int64), labels, 3)
        )
    return made


if __name__ == "__main__":
    main(sys.argv[1])
