"""Distributed computation in several processes (ranks) started by torchrun.

Ranks are numbered from 0. Without torchrun there is a single rank, and every collective operation
returns its input.
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
"""Time limit for a collective operation; a crashed rank is detected earlier."""
MEETING_TIMEOUT = datetime.timedelta(minutes=10)
"""Maximum time that a started rank waits for all other ranks to start."""
ROLL_CALL_SECONDS = 3.0
"""Seconds that a rank waits for the other surviving ranks to register after a rank is lost."""
CONNECTION_ERRORS = ("gloo", "Gloo", "NCCL", "Connection", "connection", "peer", "recv", "pipe")
"""Substrings of PyTorch's messages about lost connections, which gloo raises as RuntimeError."""
CLAIMS = "claims"
"""Key in torchrun's key-value store under which the number of claimed items is stored."""
NO_MORE = 1 << 40
"""Value added to the claim counter to mark all items as claimed; above any number of items."""
AGAIN = "Run the same command again to continue"
"""Remedy in messages about lost ranks, for commands that continue unfinished work."""
FOLDER_KEY = "nmt/folder"
"""Key in torchrun's key-value store under which the run folder is stored."""


class Lost(Exception):
    """Exception for a failed collective operation after another rank has ended."""


class Silent(UserError):
    """Error that this rank does not print because another rank reports it."""


@contextlib.contextmanager
def _exchange() -> Iterator[Any]:
    """Context manager that yields torch.distributed, and raises Lost if another rank has ended."""
    import torch.distributed

    try:
        yield torch.distributed
    except RuntimeError as error:
        # gloo has no exception type for a lost peer. All its C++ exceptions become RuntimeError,
        # so only the text distinguishes them from program errors, such as mismatched shapes.
        is_typed = isinstance(error, torch.distributed.DistError)
        if is_typed or any(word in str(error) for word in CONNECTION_ERRORS):
            raise Lost(first_line(error)) from error
        raise


@dataclass(frozen=True)
class Ranks:
    """One distributed rank and its collective operations.

    number: global index of this rank
    count: number of ranks
    local: index of this rank on its machine
    attempt: number of restarts by torchrun
    """

    number: int = 0
    count: int = 1
    local: int = 0
    attempt: int = 0

    @property
    def first(self) -> bool:
        """Whether this rank writes files, draws plots and prints output."""
        return self.number == 0

    @property
    def several(self) -> bool:
        return self.count > 1

    # Collective operations

    def sums(self, *values: float) -> list[float]:
        """Returns the sums of the given values over all ranks, computed in float64."""
        if not self.several:
            return list(values)
        import torch

        # float64 represents token counts exactly.
        totals = torch.tensor(values, dtype=torch.float64)
        with _exchange() as distributed:
            distributed.all_reduce(totals)
        return totals.tolist()

    def any(self, flag: bool) -> bool:
        """Returns whether a flag is true on at least one rank."""
        return self.sums(flag) != [0]

    def wait(self) -> None:
        """Blocks until all ranks have called this method."""
        self.sums(0.0)

    def gather(self, value: Item) -> list[Item]:
        """Returns the values of all ranks, ordered by rank."""
        if not self.several:
            return [value]
        values: list[Any] = [None] * self.count
        with _exchange() as distributed:
            distributed.all_gather_object(values, value)
        return values

    def of_first(self, value: Item) -> Item:
        """Broadcasts a value of rank 0, and returns that value on every rank."""
        if not self.several:
            return value
        values = [value]
        with _exchange() as distributed:
            distributed.broadcast_object_list(values, src=0)
        return values[0]

    def mean(self, tensors: Sequence[Any]) -> None:
        """Replaces tensors in place by their mean over all ranks."""
        if not self.several:
            return
        with _exchange() as distributed:
            for tensor in tensors:
                distributed.all_reduce(tensor)
                tensor.div_(self.count)

    def collected(self, own: Sequence[Any], like: Sequence[Any]) -> list[Any]:
        """Returns all tensors of a list that is distributed over the ranks by `share`.

        own: tensors of this rank
        like: tensors with the shapes and types of the complete list
        """
        if not self.several:
            return list(own)
        import torch

        tensors = []
        with _exchange() as distributed:
            for place, shape in enumerate(like):
                turn, owner = divmod(place, self.count)
                # the broadcast fills the empty tensors
                tensors.append(own[turn] if owner == self.number else torch.empty_like(shape))
                distributed.broadcast(tensors[-1], src=owner)
        return tensors

    # Distribution of items over the ranks

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """Returns this rank's share of the items, which is every `count`-th item."""
        return items[self.number :: self.count]

    def whole(self, part: Iterable[Item]) -> list[Item]:
        """Gathers the results for items that `share` distributed, in the original order of the
        items.

        part: results for this rank's share of the items
        """
        parts = self.gather(list(part))
        items: list[Any] = [None] * sum(map(len, parts))
        for number, its_items in enumerate(parts):
            items[number :: self.count] = its_items  # the slice that `share` has selected
        return items

    def claimed(self, items: Sequence[Item]) -> Iterator[Item]:
        """Yields items that this rank claims dynamically; no other rank claims the same item."""
        if not self.several:
            yield from items
            return
        store = self._claims()
        while (place := _added(store, 1) - 1) < len(items):
            yield items[place]

    def end_claims(self) -> None:
        """Marks all items as claimed on every rank, which ends the iteration of `claimed`."""
        if self.several:
            _added(self._claims(), NO_MORE)

    def _claims(self) -> Any:
        # The connected store: a new connection to a lost rank 0 would be retried for minutes.
        from torch.distributed.distributed_c10d import _get_default_store

        return _get_default_store()

    def agree(self, what: str, value: object, remedy: str) -> None:
        """Raises UserError on every rank if the ranks have different values.

        what: name of the value, for the message; for mappings, the message names a differing key
        value: value of this rank
        remedy: advice for the message
        """
        values = self.gather(value)
        others = [number for number, theirs in enumerate(values) if theirs != values[0]]
        if not others:
            return
        ranks, differ = ("ranks", "differ") if len(others) > 1 else ("rank", "differs")
        raise UserError(
            f"all {self.count} processes must have the same {what}, but {ranks} "
            f"{', '.join(map(str, others))} {differ} from rank 0"
            f"{_difference(values[others[0]], values[0])}: {remedy}"
        )

    # Gradients

    def wrapped(self, network: Any) -> Any:
        """Wraps a network in DistributedDataParallel, which averages gradients over all ranks."""
        if not self.several:
            return network
        from torch.nn.parallel import DistributedDataParallel

        device = next(network.parameters()).device
        # find_unused_parameters also keeps the gradient buckets fixed from the first update on.
        # So a resumed run sums gradients in the same order as an uninterrupted run.
        with _exchange():
            return DistributedDataParallel(
                network,
                device_ids=[device.index] if device.type == "cuda" else None,
                find_unused_parameters=True,
                gradient_as_bucket_view=True,
            )

    def sharded(self, optimizer: Any) -> Any:
        """Returns an optimizer whose state is divided among the ranks (Rajbhandari et al. 2020,
        "ZeRO", stage 1)."""
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(
            optimizer.param_groups, type(optimizer), **optimizer.defaults
        )

    def last(self, network: Any, last: bool) -> contextlib.AbstractContextManager[None]:
        """Returns the context of one forward and backward pass; ranks exchange gradients only in
        the last pass of an update.

        network: wrapped network
        last: whether this is the last pass of the update
        """
        if not self.several:
            return contextlib.nullcontext()
        return _exchange() if last else network.no_sync()


def _added(store: Any, count: int) -> int:
    """Adds a number of claims to the counter in a key-value store, and returns the sum."""
    with _exchange():
        return int(store.add(CLAIMS, count))


def _difference(value: object, first: object) -> str:
    """Describes a key whose values differ between two mappings; returns "" for other types."""
    if not isinstance(value, Mapping) or not isinstance(first, Mapping):
        return ""
    for key in {**first, **value}:
        if value.get(key) != first.get(key):
            return f" ({key}: {value.get(key, 'not set')}, not {first.get(key, 'not set')})"
    return ""


ALONE = Ranks()


def of_torchrun() -> Ranks:
    """Returns this process's rank, read from torchrun's environment; `ALONE` without torchrun."""
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
    """Returns whether the process group of several ranks is initialised."""
    if not ranks.several:
        return False
    with _exchange() as distributed:
        return bool(distributed.is_initialized())


def note_folder(folder: str) -> None:
    """Stores the run folder for replacement processes that torchrun may start after a failure."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _store_of_torchrun().set(FOLDER_KEY, folder)


def noted_folder() -> str | None:
    """Returns the run folder stored by this process or an earlier process; None if no folder is
    stored.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    store = _store_of_torchrun()
    return store.get(FOLDER_KEY).decode() if store.check([FOLDER_KEY]) else None


def _store_of_torchrun() -> Any:
    """Returns the key-value store that all ranks of a command share.

    The store belongs to torchrun, which outlives the ranks, or else to rank 0.

    Raises UserError if the store cannot be reached.
    """
    from torch.distributed import TCPStore

    is_ours = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" and of_torchrun().first
    try:
        return TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=is_ours,
            timeout=MEETING_TIMEOUT,
            multi_tenant=is_ours,
        )
    except RuntimeError as error:
        raise UserError(
            f"the other processes (ranks) cannot be reached ({first_line(error)}). {AGAIN}"
        ) from error


@contextlib.contextmanager
def together(cuda: bool, remedy: str | None = None) -> Iterator[Ranks]:
    """Context manager that connects the ranks of a command with gloo, and with NCCL for GPUs.

    cuda: whether the ranks compute on GPUs
    remedy: advice in messages about lost ranks; None uses the advice for resuming a training run

    A UserError on one rank ends all ranks and is reported once. If a rank ends unexpectedly, the
    remaining ranks raise UserError with its number within seconds. A nested call uses the
    connection of the outer call.
    """
    ranks = of_torchrun()
    if not ranks.several or connected(ranks):
        yield ranks
        return
    import torch.distributed as distributed

    # If this module is imported after init_process_group, it keeps a reference to the group as a
    # default argument; the group's threads may then abort the exit of Python.
    import torch.distributed.optim  # noqa: F401
    from torch.distributed.distributed_c10d import _set_pg_timeout

    # The prefix separates the keys from those of earlier attempts in the same store.
    store = distributed.PrefixStore(f"nmt/{ranks.attempt}", _store_of_torchrun())
    try:
        with _exchange():
            distributed.init_process_group(
                "cpu:gloo,cuda:nccl" if cuda else "gloo",
                store=store,
                rank=ranks.number,
                world_size=ranks.count,
                timeout=MEETING_TIMEOUT,
            )
        # A rank that ended before it connected is noticed within the shorter time limit.
        _set_pg_timeout(EXCHANGE_TIMEOUT)
        yield ranks
    except Lost as lost:
        with contextlib.suppress(ValueError):  # signals can be set only in the main thread
            # torchrun terminates the surviving ranks; they ignore it until the reason is reported.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _reason(ranks, store, lost, remedy) from lost
    except UserError as error:
        with contextlib.suppress(RuntimeError):
            store.set(f"error/{ranks.number}", str(error))
        raise error if ranks.first else Silent(str(error)) from error
    except Stopped as stopped:  # a UserError raised on all ranks
        traceback.clear_frames(stopped.__traceback__)
        _disconnect()
        raise
    _disconnect()


def _disconnect() -> None:
    """Destroys the process group and ends its threads.

    A wrapped network also holds a reference to the group. If this were the last reference, the
    destructor would join the group's threads while it holds the interpreter lock, and could
    deadlock.
    """
    gc.collect()
    with _exchange() as distributed:
        distributed.destroy_process_group()


def _reason(ranks: Ranks, store: Any, lost: Lost, remedy: str | None) -> UserError:
    """Returns the error of the rank that failed, or an error with the numbers of the lost ranks.

    The error is of type Silent on all ranks except the rank that reports it.
    """
    numbers = range(ranks.count)
    try:
        # Surviving ranks register; ranks that have not registered after the wait have ended.
        store.set(f"survivor/{ranks.number}", "")
        time.sleep(ROLL_CALL_SECONDS)
        failed = [number for number in numbers if store.check([f"error/{number}"])]
        survivors = [number for number in numbers if store.check([f"survivor/{number}"])]
        if failed:
            message = f"rank {failed[0]}: {store.get(f'error/{failed[0]}').decode()}"
            is_reported = failed[0] == 0  # rank 0 reports its own error
        else:
            gone = ", ".join(str(number) for number in numbers if number not in survivors)
            message = (
                f"rank {gone} of {ranks.count} has ended (killed, out of memory, or its machine "
                f"is down). {remedy or _remedy(noted_folder())}"
            )
            is_reported = False
    except RuntimeError:  # the key-value store cannot be reached either
        return UserError(
            f"rank {ranks.number}: the other ranks cannot be reached ({lost}). "
            f"{remedy or _remedy(None)}"
        )
    if is_reported or ranks.number != survivors[0]:
        return Silent(message)
    return UserError(message)


def _remedy(folder: str | None) -> str:
    resume = typed(resume=folder or "RUN_DIR")
    return (
        f"Use {resume} to continue from the last checkpoint; torchrun --max-restarts=N resumes "
        "automatically"
    )
