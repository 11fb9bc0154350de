"""Connection of the ranks that torchrun has started, and errors after a rank is lost."""

import contextlib
import datetime
import gc
import os
import signal
import time
import traceback
from collections.abc import Iterator
from typing import Any

from nmt.foundation.errors import Stopped, UserError, first_line, typed
from nmt.foundation.ranks import ALONE, Lost, Ranks, exchange

EXCHANGE_TIMEOUT = datetime.timedelta(hours=12)
"""Time limit for a collective operation; a crashed rank is detected earlier."""
MEETING_TIMEOUT = datetime.timedelta(minutes=10)
"""Maximum time that a started rank waits for all other ranks to start."""
ROLL_CALL_SECONDS = 3.0
"""Seconds that a rank waits for the other surviving ranks to register after a rank is lost."""
AGAIN = "Run the same command again to continue"
"""Advice in messages about lost ranks, for commands that can be resumed by repeating them."""
FOLDER_KEY = "nmt/folder"
"""Key in torchrun's key-value store under which the path of the run folder is stored."""


class Silent(UserError):
    """Error that this rank does not print because another rank reports it."""


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


def is_connected() -> bool:
    """Returns whether the process group of the ranks is initialised."""
    import torch.distributed

    return torch.distributed.is_initialized()


def note_folder(folder: str) -> None:
    """Stores the path of the run folder for the processes that torchrun starts after a failure."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _store_of_torchrun().set(FOLDER_KEY, folder)


def noted_folder() -> str | None:
    """Returns the path of the run folder that `note_folder` has stored, possibly before torchrun
    restarted the processes; None if no path is stored.
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
    if not ranks.several or is_connected():
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
        with exchange():
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

    A network wrapped in DistributedDataParallel also holds a reference to the group. If this were
    the last reference, the destructor would join the group's threads while it holds the interpreter
    lock, and could deadlock.
    """
    gc.collect()
    with exchange() as distributed:
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
        else:
            gone = ", ".join(str(number) for number in numbers if number not in survivors)
            message = (
                f"rank {gone} of {ranks.count} has ended (killed, out of memory, or its machine "
                f"is down). {remedy or _remedy(noted_folder())}"
            )
    except RuntimeError:  # the key-value store cannot be reached either
        return UserError(
            f"rank {ranks.number}: the other ranks cannot be reached ({lost}). "
            f"{remedy or _remedy(None)}"
        )
    reporter = 0 if 0 in failed[:1] else survivors[0]  # rank 0 reports its own error
    return UserError(message) if ranks.number == reporter else Silent(message)


def _remedy(folder: str | None) -> str:
    resume = typed(resume=folder or "RUN_DIR")
    return (
        f"Use {resume} to continue from the last checkpoint; torchrun --max-restarts=N resumes "
        "automatically"
    )
