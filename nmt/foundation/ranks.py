"""Distributed computation in several processes (ranks) started by torchrun.

Ranks are numbered from 0. Without torchrun there is a single rank, and every collective operation
returns its input.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nmt.foundation.errors import UserError, first_line

Item = TypeVar("Item")
CONNECTION_ERRORS = ("gloo", "Gloo", "NCCL", "Connection", "connection", "peer", "recv", "pipe")
"""Substrings of PyTorch's messages about lost connections, which gloo raises as RuntimeError."""
NO_MORE = 1 << 40
"""Value added to the claim counter to mark all items as claimed; greater than any item count."""


class Lost(Exception):
    """Exception for a failed collective operation after another rank has ended."""


@contextlib.contextmanager
def exchange() -> Iterator[Any]:
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
        with exchange() as distributed:
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
        with exchange() as distributed:
            distributed.all_gather_object(values, value)
        return values

    def of_first(self, value: Item) -> Item:
        """Broadcasts a value of rank 0, and returns that value on every rank."""
        if not self.several:
            return value
        values = [value]
        with exchange() as distributed:
            distributed.broadcast_object_list(values, src=0)
        return values[0]

    def on_first(self, action: Callable[[], Item]) -> Item:
        """Calls a function on rank 0, and returns its result on every rank."""
        result: Any = action() if self.first else None
        return self.of_first(result)

    def mean(self, tensors: Sequence[Any]) -> None:
        """Replaces tensors in place by their mean over all ranks."""
        if not self.several:
            return
        with exchange() as distributed:
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
        with exchange() as distributed:
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

    def claimed(self, items: Sequence[Item], name: str) -> Iterator[Item]:
        """Yields items that this rank claims dynamically; no other rank claims the same item.

        items: items of all ranks
        name: name of the items, which differs from the names of other claimed items
        """
        if not self.several:
            yield from items
            return
        while (place := _add_claims(name, 1) - 1) < len(items):
            yield items[place]

    def end_claims(self, name: str) -> None:
        """Marks all items as claimed on every rank, which ends the iteration over `claimed()`."""
        if self.several:
            _add_claims(name, NO_MORE)

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
        with exchange():
            return DistributedDataParallel(
                network,
                device_ids=[device.index] if device.type == "cuda" else None,
                find_unused_parameters=True,
                gradient_as_bucket_view=True,
            )

    def sharded(self, optimizer: Any) -> Any:
        """Returns an optimizer whose state is sharded across the ranks (Rajbhandari et al. 2020,
        "ZeRO", stage 1)."""
        from torch.distributed.optim import ZeroRedundancyOptimizer

        # Some defaults, such as AdamW's decoupled_weight_decay, are not constructor arguments.
        names = inspect.signature(type(optimizer)).parameters
        settings = {key: value for key, value in optimizer.defaults.items() if key in names}
        return ZeroRedundancyOptimizer(optimizer.param_groups, type(optimizer), **settings)

    def last(self, network: Any, last: bool) -> contextlib.AbstractContextManager[None]:
        """Context manager for one forward and backward pass; ranks exchange gradients only in
        the last pass of an update.

        network: network wrapped in DistributedDataParallel; any network if there is a single rank
        last: whether this is the last pass of the update
        """
        if not self.several:
            return contextlib.nullcontext()
        return exchange() if last else network.no_sync()


def _add_claims(name: str, count: int) -> int:
    """Adds a number to the claim counter of the items in the key-value store of all ranks, and
    returns the sum."""
    from torch.distributed.distributed_c10d import _get_default_store

    with exchange():
        # The connected store: a new connection to a lost rank 0 would be retried for minutes.
        return int(_get_default_store().add(f"claims of {name}", count))


def _difference(value: object, first: object) -> str:
    """Describes a key whose values differ between two mappings; returns "" for other types."""
    if not isinstance(value, Mapping) or not isinstance(first, Mapping):
        return ""
    for key in {**first, **value}:
        if value.get(key) != first.get(key):
            return f" ({key}: {value.get(key, 'not set')}, not {first.get(key, 'not set')})"
    return ""


ALONE = Ranks()
