"""Data sets of the Hugging Face Hub, except data sets that need a loading script."""

import os
import socket
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nmt.data import Pairs
from nmt.data.formats import Rows, present
from nmt.data.formats.parquet import class_names
from nmt.data.lines import CHUNK
from nmt.data.sources.table import Table
from nmt.data.streams import Stream
from nmt.foundation.errors import UserError
from nmt.storage.cache import cache_folder


class HubData(Table):
    """Data source for a data set of the Hugging Face Hub.

    path: data set id, a local folder of files, or a folder written by `save_to_disk`
    name: configuration name of the data set
    revision: commit hash, which fixes the version of the data

    The arguments train, validation and test name splits of the data set. All further arguments are
    those of the base class `Table`.
    """

    def __init__(
        self,
        *,
        path: str,
        name: str | None = None,
        revision: str | None = None,
        train: str = "train",
        validation: str | list[str] | None = "validation",
        test: str | None = "test",
        **settings: Any,
    ) -> None:
        super().__init__(train=train, validation=validation, test=test, **settings)
        self.path = path
        self.name = name
        self.revision = revision

    def rows(self, part: str, columns: Sequence[str]) -> Stream[Rows]:
        if not Path(self.path).exists() and _offline():
            # Cached data is then loaded without waiting for network timeouts.
            os.environ["HF_HUB_OFFLINE"] = "1"
        # nmt.train(data=…) saves data sets in the cache.
        path = "data" if Path(self.path).parent == cache_folder() / "datasets" else self.path
        name = f"{path}{f'/{self.name}' if self.name else ''}, split {part}"
        try:
            table = self._loaded(part)
        except UserError:
            raise
        except Exception as error:  # the library raises many exception types
            raise UserError(
                f"data set {name}: cannot be loaded ({error.__cause__ or error}). Check data.path, "
                "data.name and the split names; without an internet connection, use local files, "
                "such as data=text or data=jsonl"
            ) from error
        requested = table.select_columns(present(table.column_names, columns))
        classes = class_names(table.features)

        def read() -> Iterator[Rows]:
            for start in range(0, len(table), CHUNK):
                yield Rows(
                    name=name,
                    names=table.column_names,
                    values=requested[start : start + CHUNK],
                    first=start + 1,
                    class_names=classes,
                )

        return Stream(name, read, settings=table._fingerprint)

    def training_stream(self) -> Stream[Pairs] | None:
        return super().training_stream() if Path(self.path).exists() else None

    def _loaded(self, part: str) -> Any:
        """Loads a split as a `Dataset` of the `datasets` library."""
        import datasets  # `datasets` reads HF_HUB_OFFLINE when imported

        # `save_to_disk` writes one of these files.
        if not any(Path(self.path, f"{name}.json").is_file() for name in ("dataset_dict", "state")):
            return datasets.load_dataset(self.path, self.name, split=part, revision=self.revision)
        if self.name or self.revision:
            raise UserError(
                f"data set {self.path}: data.name and data.revision have no effect on a folder "
                "written by save_to_disk; leave them out"
            )
        saved = datasets.load_from_disk(self.path)
        parts = saved if isinstance(saved, datasets.DatasetDict) else {"train": saved}
        if part not in parts:
            raise UserError(
                f"data set {self.path}: split {part} not found (available: {', '.join(parts)}). "
                "Choose one of these, or hold out training pairs with data.split"
            )
        return parts[part]


def _offline() -> bool:
    """Returns whether the host name of the Hugging Face Hub cannot be resolved."""
    if urllib.request.getproxies():  # a proxy may resolve the address instead
        return False
    host = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co").hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return True
    return False
