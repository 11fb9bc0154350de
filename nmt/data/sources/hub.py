"""Data sets of the Hugging Face hub, except those that need a loading script."""

import os
import socket
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nmt.data.formats import Rows, present
from nmt.data.formats.parquet import class_names
from nmt.data.lines import CHUNK
from nmt.data.parts import Stream
from nmt.data.sources.table import Table
from nmt.foundation.errors import UserError
from nmt.foundation.ranges import Share


class HubData(Table):
    """A data set of the hub.

    path: id of the data set, a local folder of files, or a folder written by `save_to_disk`.
    name: config of the data set.
    revision: commit, to fix the version of the text.

    The other arguments are those of `Table`; parts are splits of the data set.
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
        split: Share = 0.0,
        source: str | list[str] | None = None,
        target: str | None = None,
        factors: list[str] | None = None,
        alignment: str | None = None,
        text: str | None = None,
        label: str | list[str] | None = None,
        separator: str | None = None,
    ) -> None:
        super().__init__(
            train=train,
            validation=validation,
            test=test,
            split=split,
            source=source,
            target=target,
            factors=factors,
            alignment=alignment,
            text=text,
            label=label,
            separator=separator,
        )
        self.path = path
        self.name = name
        self.revision = revision

    def rows(self, part: str, columns: Sequence[str]) -> Stream[Rows]:
        if not Path(self.path).exists() and _offline():
            # Data in the cache is still loaded, without waiting for a network.
            os.environ["HF_HUB_OFFLINE"] = "1"
        name = f"{self.path}{f'/{self.name}' if self.name else ''}, split {part}"
        try:
            table = self._loaded(part)
        except UserError:
            raise
        except Exception as error:  # the library raises errors of many types
            raise UserError(
                f"data set {name}: cannot be loaded: {error.__cause__ or error}. Check data.path, "
                "data.name and the split names; without a network, use local files (data=text, "
                "data=jsonl …)"
            ) from error
        requested = table.select_columns(present(table.column_names, columns))
        classes = class_names(table.features)

        def read() -> Iterator[Rows]:
            for start in range(0, len(requested), CHUNK):
                values = requested[start : start + CHUNK]
                yield Rows(name, table.column_names, values, start + 1, classes)

        return Stream(name, read, settings=table._fingerprint)

    def training_stream(self) -> Stream[Rows] | None:
        return super().training_stream() if Path(self.path).exists() else None

    def _loaded(self, part: str) -> Any:
        """A part as an object of the `datasets` library."""
        import datasets  # after HF_HUB_OFFLINE is set, which it reads at import

        is_dict = Path(self.path, "dataset_dict.json").is_file()
        if not is_dict and not Path(self.path, "state.json").is_file():
            return datasets.load_dataset(self.path, self.name, split=part, revision=self.revision)
        saved = datasets.load_from_disk(self.path)  # a folder that `save_to_disk` wrote
        parts = saved if is_dict else {"train": saved}
        if part not in parts:
            raise UserError(
                f"data set {self.path}: no split {part}. It has: {', '.join(parts)}. "
                "Name its splits, or set data.split"
            )
        return parts[part]


def _offline() -> bool:
    """Whether the hub's address cannot be resolved."""
    if urllib.request.getproxies():  # a proxy may resolve more addresses than this machine
        return False
    host = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co").hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return True
    return False
