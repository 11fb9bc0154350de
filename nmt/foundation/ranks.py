"""Training on several processes, which torchrun starts: which of them this one is, and what they tell one another.

Every process is a *rank*, with a number from 0. Without torchrun there is one rank, and each exchange gives back what it
got, so that whatever uses `Ranks` has no second path.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from nmt.foundation.errors import Stopped, UserError, typed

Item = TypeVar("Item")
PATIENCE = datetime.timedelta(hours=12)
"""How long a rank waits for the others. One that has died closes its connections, which ends the others at once."""
MEETING = datetime.timedelta(minutes=10)
"""How long ranks wait for those that begin later."""
ROLL_CALL = 3.0
"""Seconds in which a rank that has lost another must say that it is there itself."""


class Lost(Exception):
    """An exchange failed: another rank is gone."""


class Ranks:
    """`number` of `count` processes, the `local` one of its machine; `attempt`: how often torchrun has started them
    again."""

    def __init__(self, number: int = 0, count: int = 1, local: int = 0, attempt: int = 0) -> None:
        self.number, self.count, self.local, self.attempt = number, count, local, attempt

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes, draws and prints."""
        return self.number == 0

    @property
    def several(self) -> bool:
        return self.count > 1

    # What they tell one another

    def sums(self, *values: float) -> list[float]:
        """The sums over all ranks, in float64."""
        if not self.several:
            return list(values)
        import torch
        import torch.distributed as dist

        held = torch.tensor(values, dtype=torch.float64)
        with _losing():
            dist.all_reduce(held)
        return held.tolist()

    def any(self, flag: bool) -> bool:
        """Whether the flag is true on some rank."""
        return self.sums(flag) != [0]

    def gather(self, value: Item) -> list[Item]:
        """What every rank has, in the order of their numbers."""
        if not self.several:
            return [value]
        import torch.distributed as dist

        found: list[Any] = [None] * self.count
        with _losing():
            dist.all_gather_object(found, value)
        return found

    def of_first(self, value: Item) -> Item:
        """What the first rank has."""
        if not self.several:
            return value
        import torch.distributed as dist

        held = [value]
        with _losing():
            dist.broadcast_object_list(held, src=0)
        return held[0]

    def mean(self, tensors: Sequence[Any]) -> None:
        """Replaces tensors by their mean over all ranks."""
        if self.several and tensors:
            import torch.distributed as dist

            with _losing():
                for tensor in tensors:
                    dist.all_reduce(tensor)
                    tensor.div_(self.count)

    def collected(self, own: Sequence[Any], like: Sequence[Any]) -> list[Any]:
        """All of some tensors, of which each rank has its `share`; `like`: tensors of their shapes."""
        if not self.several:
            return list(own)
        import torch
        import torch.distributed as dist

        found = []
        with _losing():
            for place, other in enumerate(like):
                turn, owner = divmod(place, self.count)
                found.append(own[turn] if owner == self.number else torch.empty_like(other))
                dist.broadcast(found[-1], src=owner)
        return found

    def wait(self) -> None:
        """Until all ranks are here."""
        self.sums(0.0)

    # How they share work

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """This rank's part of some work: every count-th item."""
        return items[self.number :: self.count]

    def whole(self, part: Iterable[Item]) -> list[Item]:
        """The work of all ranks, in the order of the items before `share`."""
        parts = self.gather(list(part))
        found: list[Any] = [None] * sum(map(len, parts))
        for number, its in enumerate(parts):
            found[number :: self.count] = its
        return found

    def agree(self, what: str, value: object, remedy: str) -> None:
        """Raises UserError on every rank unless all have the same value; of mappings, it names a key that differs."""
        values = self.gather(value)
        others = [number for number, its in enumerate(values) if its != values[0]]
        if others:
            names = ", ".join(map(str, others))
            raise UserError(
                f"{self.count} processes train together, and rank{'s' * (len(others) > 1)} {names} of them "
                f"{'have' if len(others) > 1 else 'has'} another {what} than rank 0"
                f"{_difference(values[others[0]], values[0])}: {remedy}"
            )

    # The gradient

    def wrapped(self, network: Any) -> Any:
        """The network whose backward pass sums gradients over all ranks while it runs, in buckets."""
        if not self.several:
            return network
        from torch.nn.parallel import DistributedDataParallel

        # Looking for parameters that a batch does not use also keeps the buckets, and with them the order of every sum, as
        # they are from the first update on: a resumed run adds as an uninterrupted one.
        device = next(network.parameters()).device
        devices = [device.index] if device.type == "cuda" else None
        with _losing():
            return DistributedDataParallel(
                network,
                device_ids=devices,
                find_unused_parameters=True,
                gradient_as_bucket_view=True,
            )

    def sharded(self, optimizer: Any) -> Any:
        """The optimizer, with what it remembers of a parameter kept by one rank only, which tells the others the new weights
        (Rajbhandari et al. 2020, "ZeRO", stage 1)."""
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(
            optimizer.param_groups, type(optimizer), **optimizer.defaults
        )

    def last(self, network: Any, last: bool) -> contextlib.AbstractContextManager[None]:
        """Around the passes of one batch of an update: gradients are exchanged in the last one only."""
        if self.several and not last:
            return network.no_sync()
        return _losing() if self.several else contextlib.nullcontext()


def _difference(there: object, here: object) -> str:
    if not isinstance(there, Mapping) or not isinstance(here, Mapping):
        return ""
    absent = "nothing"
    key = next(key for key in {**here, **there} if there.get(key, absent) != here.get(key, absent))
    return f" ({key}: {there.get(key, absent)}, not {here.get(key, absent)})"


ALONE = Ranks()


def of_torchrun() -> Ranks:
    """What torchrun says of this process; `ALONE` if it did not start it."""
    try:
        numbers = [int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
    except (KeyError, ValueError):
        return ALONE
    number, count, local = numbers
    return Ranks(
        number, count, local, attempt=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    )


def connected(ranks: Ranks) -> bool:
    """Whether this rank has found the others."""
    if not ranks.several:
        return False
    import torch.distributed as dist

    return dist.is_initialized()


def note_folder(folder: str) -> None:
    """Tells the processes that torchrun may start in place of these where the run is."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _of_torchrun().set("nmt/folder", folder)


def noted_folder() -> str | None:
    """The folder that was noted, perhaps by processes before these."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    store = _of_torchrun()
    return store.get("nmt/folder").decode() if store.check(["nmt/folder"]) else None


def _of_torchrun() -> Any:
    """The store through which its processes find one another: torchrun's own, which outlives them, or the first rank's."""
    import torch.distributed as dist

    mine = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" and of_torchrun().first
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(host, port, is_master=mine, timeout=MEETING, multi_tenant=mine)


@contextlib.contextmanager
def together(cuda: bool) -> Iterator[Ranks]:
    """The ranks of this training, connected: by gloo, with GPUs (`cuda`) by nccl too.

    A UserError of one rank ends all of them, and is told once: by the first rank, or by the one that has it. If a rank is
    gone, the others find out which and raise UserError, within seconds."""
    ranks = of_torchrun()
    if not ranks.several:
        yield ranks
        return
    import torch.distributed as dist

    # Its functions have the group of all ranks as a default, if there is one when they are imported. The threads of a group
    # that is kept so may abort the end of Python.
    import torch.distributed.optim  # noqa: F401

    # The store may hold what processes before these have left in it: every attempt has keys of its own.
    store = dist.PrefixStore(f"nmt/{ranks.attempt}", _of_torchrun())
    board = _Board(ranks, store)
    try:
        with _losing():
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if cuda else "gloo",
                store=store,
                rank=ranks.number,
                world_size=ranks.count,
                timeout=PATIENCE,
            )
        yield ranks
    except Lost as lost:
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(
                signal.SIGTERM, signal.SIG_IGN
            )  # torchrun ends those that are left; first they say why
        raise board.why(lost) from lost
    except UserError as error:
        board.tell(error)
        raise error if ranks.first else Silent(str(error)) from error
    except Stopped:  # all ranks stop
        dist.destroy_process_group()
        raise
    dist.destroy_process_group()


class Silent(UserError):
    """An error that another rank tells."""


class _Board:
    """Where ranks leave notes for those that survive them: the store that torchrun keeps."""

    def __init__(self, ranks: Ranks, store: Any) -> None:
        self.ranks, self._store = ranks, store

    def tell(self, error: UserError) -> None:
        """Leaves the message of an error that this rank ends with."""
        with contextlib.suppress(RuntimeError):
            self._store.set(f"error/{self.ranks.number}", str(error))

    def why(self, lost: Lost) -> UserError:
        """Why an exchange failed: what another rank said before it ended, or which are gone. Silent unless this is the rank
        that has to tell it."""
        number, count = self.ranks.number, self.ranks.count
        try:
            self._store.set(f"here/{number}", "")
            time.sleep(ROLL_CALL)
            told = [n for n in range(count) if self._store.check([f"error/{n}"])]
            here = [n for n in range(count) if self._store.check([f"here/{n}"])]
            if told:
                message = f"rank {told[0]}: {self._store.get(f'error/{told[0]}').decode()}"
                return UserError(message) if told[0] and number == here[0] else Silent(message)
            folder = noted_folder()
        except RuntimeError:  # the store is gone too
            return UserError(
                f"rank {number}: the others cannot be reached any more ({lost}). {_remedy(None)}"
            )
        gone = ", ".join(str(n) for n in range(count) if n not in here)
        message = f"rank {gone} of {count} is gone (killed, out of memory, or its machine is down). {_remedy(folder)}"
        return UserError(message) if number == here[0] else Silent(message)


def _remedy(folder: str | None) -> str:
    resume = typed(resume=folder or "RUN_DIR")
    return f"{resume} goes on from what was saved last; torchrun --max-restarts=N does so by itself"


@contextlib.contextmanager
def _losing() -> Iterator[None]:
    """What the exchange of a process group raises when a peer is gone, as Lost."""
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if any(
            sign in text for sign in ("gloo", "Gloo", "NCCL", "Connection", "connection", "peer")
        ):
            raise Lost(text.splitlines()[0]) from error
        raise
