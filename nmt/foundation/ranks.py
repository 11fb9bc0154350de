"""Work on several processes that torchrun starts: the number of each, and their exchanges.

Every process is a *rank*, with a number from 0. Without torchrun there is one rank, whose exchanges
return what they get, so that callers need no second path.
"""

import contextlib
import datetime
import gc
import os
import signal
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nmt.foundation.errors import Stopped, UserError, first_line, typed

Item = TypeVar("Item")
EXCHANGE_TIMEOUT = datetime.timedelta(hours=12)
"""Time that a rank waits for the others; the end of one closes its connections, and ends all."""
MEETING_TIMEOUT = datetime.timedelta(minutes=10)
"""Time that ranks wait for those that begin later."""
ROLL_CALL_SECONDS = 3.0
"""Seconds in which the survivors of a lost rank report."""
CONNECTION_ERRORS = ("gloo", "Gloo", "NCCL", "Connection", "connection", "peer")
"""Words of PyTorch's messages about lost connections, for which gloo raises plain RuntimeErrors."""
CLAIMS = "claims"
"""Key of the number of claimed items in torchrun's store."""
NO_MORE = 1 << 40
"""Claimed items, more than there can be."""
FOLDER_KEY = "nmt/folder"
"""Key of the run's folder in torchrun's store."""


class Lost(Exception):
    """An exchange failed, because another rank has ended."""


class Silent(UserError):
    """An error that another rank reports."""


@contextlib.contextmanager
def _exchange() -> Iterator[Any]:
    """torch.distributed for one exchange. Raises Lost if another rank has ended."""
    import torch.distributed

    try:
        yield torch.distributed
    except RuntimeError as error:
        # gloo has no type for a lost peer: its C++ exceptions all arrive as RuntimeError, so that
        # only the text distinguishes them from errors of the program, such as shapes that differ.
        if any(word in str(error) for word in CONNECTION_ERRORS):
            raise Lost(first_line(error)) from error
        raise


@dataclass(frozen=True)
class Ranks:
    """All ranks, as one of them sees them.

    number: number of this rank
    count: number of all ranks
    local: number of this rank on its machine
    attempt: times that torchrun has restarted them
    """

    number: int = 0
    count: int = 1
    local: int = 0
    attempt: int = 0

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes, draws and prints."""
        return self.number == 0

    @property
    def several(self) -> bool:
        return self.count > 1

    # Exchanges

    def sums(self, *values: float) -> list[float]:
        """Sums over all ranks, in float64."""
        if not self.several:
            return list(values)
        import torch

        # float64 holds counts of tokens exactly.
        totals = torch.tensor(values, dtype=torch.float64)
        with _exchange() as distributed:
            distributed.all_reduce(totals)
        return totals.tolist()

    def any(self, flag: bool) -> bool:
        """Whether the flag is true on some rank."""
        return self.sums(flag) != [0]

    def wait(self) -> None:
        """Returns when all ranks have called it."""
        self.sums(0.0)

    def gather(self, value: Item) -> list[Item]:
        """The values of all ranks, in the order of their numbers."""
        if not self.several:
            return [value]
        values: list[Any] = [None] * self.count
        with _exchange() as distributed:
            distributed.all_gather_object(values, value)
        return values

    def of_first(self, value: Item) -> Item:
        """The value of the first rank."""
        if not self.several:
            return value
        values = [value]
        with _exchange() as distributed:
            distributed.broadcast_object_list(values, src=0)
        return values[0]

    def mean(self, tensors: Sequence[Any]) -> None:
        """Replaces tensors by their mean over all ranks."""
        if not self.several:
            return
        with _exchange() as distributed:
            for tensor in tensors:
                distributed.all_reduce(tensor)
                tensor.div_(self.count)

    def collected(self, own: Sequence[Any], like: Sequence[Any]) -> list[Any]:
        """All tensors of a list of which each rank has its `share`.

        own: this rank's share
        like: tensors of the shapes of all
        """
        if not self.several:
            return list(own)
        import torch

        tensors = []
        with _exchange() as distributed:
            for place, shape in enumerate(like):
                turn, owner = divmod(place, self.count)
                tensors.append(own[turn] if owner == self.number else torch.empty_like(shape))
                distributed.broadcast(tensors[-1], src=owner)
        return tensors

    # Shared work

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """This rank's share of some work: every count-th item."""
        return items[self.number :: self.count]

    def whole(self, part: Iterable[Item]) -> list[Item]:
        """The work of all ranks, in the order of the items before `share`."""
        parts = self.gather(list(part))
        items: list[Any] = [None] * sum(map(len, parts))
        for number, its_items in enumerate(parts):
            items[number :: self.count] = its_items
        return items

    def claimed(self, items: Sequence[Item]) -> Iterator[Item]:
        """Items that this rank takes: the next one, each time, that no rank has taken."""
        if not self.several:
            yield from items
            return
        store = self._claims()
        while (place := store.add(CLAIMS, 1) - 1) < len(items):
            yield items[place]

    def end_claims(self) -> None:
        """Leaves no more items to `claimed`, on every rank."""
        if self.several:
            self._claims().add(CLAIMS, NO_MORE)

    def _claims(self) -> Any:
        from torch.distributed import PrefixStore

        return PrefixStore(f"nmt/{self.attempt}", _store_of_torchrun())

    def agree(self, what: str, value: object, remedy: str) -> None:
        """Raises UserError on every rank unless all have the same value.

        what: name of the value in the message; of mappings, it names a key that differs
        value: the value of this rank
        remedy: advice in the message
        """
        values = self.gather(value)
        others = [number for number, theirs in enumerate(values) if theirs != values[0]]
        if not others:
            return
        ranks, have = ("ranks", "have") if len(others) > 1 else ("rank", "has")
        raise UserError(
            f"{self.count} processes work together, and {ranks} {', '.join(map(str, others))} of "
            f"them {have} another {what} than rank 0"
            f"{_difference(values[others[0]], values[0])}: {remedy}"
        )

    # Gradients

    def wrapped(self, network: Any) -> Any:
        """The network whose backward pass also sums gradients over all ranks, in buckets."""
        if not self.several:
            return network
        from torch.nn.parallel import DistributedDataParallel

        device = next(network.parameters()).device
        # The search for unused parameters also keeps the buckets, and with them the order of every
        # sum, as they are from the first update on: a resumed run adds like an uninterrupted one.
        with _exchange():
            return DistributedDataParallel(
                network,
                device_ids=[device.index] if device.type == "cuda" else None,
                find_unused_parameters=True,
                gradient_as_bucket_view=True,
            )

    def sharded(self, optimizer: Any) -> Any:
        """The optimizer with the state of each parameter on one rank only, which sends the new
        weights to the others (Rajbhandari et al. 2020, "ZeRO", stage 1)."""
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(
            optimizer.param_groups, type(optimizer), **optimizer.defaults
        )

    def last(self, network: Any, last: bool) -> contextlib.AbstractContextManager[None]:
        """Context of the passes of one batch: gradients are exchanged in an update's last one."""
        if not self.several:
            return contextlib.nullcontext()
        return _exchange() if last else network.no_sync()


def _difference(value: object, first: object) -> str:
    """A key of two mappings whose values differ, as text."""
    if not isinstance(value, Mapping) or not isinstance(first, Mapping):
        return ""
    for key in {**first, **value}:
        if value.get(key) != first.get(key):
            return f" ({key}: {value.get(key, 'nothing')}, not {first.get(key, 'nothing')})"
    return ""


ALONE = Ranks()


def of_torchrun() -> Ranks:
    """The ranks that torchrun has started; `ALONE` without it."""
    try:
        return Ranks(
            number=int(os.environ["RANK"]),
            count=int(os.environ["WORLD_SIZE"]),
            local=int(os.environ["LOCAL_RANK"]),
            attempt=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        )
    except (KeyError, ValueError):
        return ALONE


def connected(ranks: Ranks) -> bool:
    """Whether this rank has a connection to the others."""
    if not ranks.several:
        return False
    with _exchange() as distributed:
        return bool(distributed.is_initialized())


def note_folder(folder: str) -> None:
    """Records the folder of the run for the processes that torchrun may start in place of these."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _store_of_torchrun().set(FOLDER_KEY, folder)


def noted_folder() -> str | None:
    """The recorded folder, perhaps of processes before these."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    store = _store_of_torchrun()
    return store.get(FOLDER_KEY).decode() if store.check([FOLDER_KEY]) else None


def _store_of_torchrun() -> Any:
    """The store through which ranks meet: torchrun's, which outlives them, or the first rank's."""
    from torch.distributed import TCPStore

    is_ours = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" and of_torchrun().first
    return TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=is_ours,
        timeout=MEETING_TIMEOUT,
        multi_tenant=is_ours,
    )


@contextlib.contextmanager
def together(cuda: bool, remedy: str | None = None) -> Iterator[Ranks]:
    """The connected ranks of this command: by gloo, with GPUs by nccl too.

    cuda: whether they compute on GPUs
    remedy: advice in messages about lost ranks; None: that of a training

    A UserError of one rank ends all, and is reported once: by the first rank, or by the one that
    has it. If a rank ends, the others raise UserError with its number within seconds.
    """
    ranks = of_torchrun()
    if not ranks.several:
        yield ranks
        return
    import torch.distributed as distributed

    # This module takes the group of all ranks as a default if it is imported later; the threads of
    # a group that is kept so may abort the exit of Python.
    import torch.distributed.optim  # noqa: F401

    # Keys of each attempt: the store may hold those of earlier processes.
    store = distributed.PrefixStore(f"nmt/{ranks.attempt}", _store_of_torchrun())
    try:
        with _exchange():
            distributed.init_process_group(
                "cpu:gloo,cuda:nccl" if cuda else "gloo",
                store=store,
                rank=ranks.number,
                world_size=ranks.count,
                timeout=EXCHANGE_TIMEOUT,
            )
        yield ranks
    except Lost as lost:
        with contextlib.suppress(ValueError):  # not in the main thread
            # torchrun ends the survivors; before, they report the reason.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _reason(ranks, store, lost, remedy) from lost
    except UserError as error:
        with contextlib.suppress(RuntimeError):
            store.set(f"error/{ranks.number}", str(error))
        raise error if ranks.first else Silent(str(error)) from error
    except Stopped as stopped:  # all ranks stop
        traceback.clear_frames(stopped.__traceback__)
        _disconnect()
        raise
    _disconnect()


def _disconnect() -> None:
    """Destroys the group of all ranks and ends its threads.

    A wrapped network owns the group too. If it were the last owner, its destructor would join the
    threads of the group while it holds the interpreter lock that one of them may wait for.
    """
    gc.collect()
    with _exchange() as distributed:
        distributed.destroy_process_group()


def _reason(ranks: Ranks, store: Any, lost: Lost, remedy: str | None) -> UserError:
    """The error of another rank, or the numbers of the ranks that have ended.

    It is Silent on all ranks but the one that reports it.
    """
    numbers = range(ranks.count)
    try:
        # Survivors sign up; after a moment, those without a sign are gone.
        store.set(f"survivor/{ranks.number}", "")
        time.sleep(ROLL_CALL_SECONDS)
        failed = [number for number in numbers if store.check([f"error/{number}"])]
        survivors = [number for number in numbers if store.check([f"survivor/{number}"])]
        if failed:
            message = f"rank {failed[0]}: {store.get(f'error/{failed[0]}').decode()}"
            is_reported = failed[0] == 0  # by the first rank itself
        else:
            gone = ", ".join(str(number) for number in numbers if number not in survivors)
            message = (
                f"rank {gone} of {ranks.count} is gone (killed, out of memory, or its machine is "
                f"down). {remedy or _remedy(noted_folder())}"
            )
            is_reported = False
    except RuntimeError:  # the store is gone too
        return UserError(
            f"rank {ranks.number}: the others cannot be reached ({lost}). {remedy or _remedy(None)}"
        )
    if is_reported or ranks.number != survivors[0]:
        return Silent(message)
    return UserError(message)


def _remedy(folder: str | None) -> str:
    resume = typed(resume=folder or "RUN_DIR")
    return f"{resume} continues from the last save; torchrun --max-restarts=N does so automatically"
