"""Any data set of the Hugging Face hub that needs no loading script: id, config, splits, columns."""

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
from nmt.data.sources.table import Table
from nmt.data.stream import Stream
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
            # data in the cache is still loaded, without waiting for a network
            os.environ["HF_HUB_OFFLINE"] = "1"
        import datasets

        name = f"{self.path}{f'/{self.name}' if self.name else ''}, split {part}"
        try:
            table = self._saved(part)
            if table is None:
                table = datasets.load_dataset(
                    self.path, self.name, split=part, revision=self.revision
                )
        except UserError:
            raise
        except Exception as error:  # the library raises errors of many types
            raise UserError(
                f"data set {name}: cannot be loaded: {error.__cause__ or error}. Check data.path, "
                "data.name and the split names; without a network, use local files (data=text, "
                "data=jsonl …)"
            ) from error
        asked = table.select_columns(present(table.column_names, columns))
        classes = class_names(table.features)

        def read() -> Iterator[Rows]:
            for start in range(0, len(asked), CHUNK):
                values = asked[start : start + CHUNK]
                yield Rows(name, table.column_names, values, start + 1, classes)

        return Stream(name, read, settings=table._fingerprint)

    def _saved(self, part: str) -> Any:
        """A part of a folder that `save_to_disk` wrote; None if `path` is something else."""
        folder = Path(self.path)
        is_dict = (folder / "dataset_dict.json").is_file()
        if not is_dict and not (folder / "state.json").is_file():
            return None
        import datasets

        saved = datasets.load_from_disk(self.path)
        parts = saved if is_dict else {"train": saved}
        if part not in parts:
            raise UserError(
                f"data set {self.path}: no split {part}. It has: {', '.join(parts)}. "
                "Name its splits, or set data.split"
            )
        return parts[part]


def _offline() -> bool:
    """Whether the hub's address cannot be resolved. A proxy may resolve more than this machine."""
    if urllib.request.getproxies():
        return False
    host = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co").hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return True
    return False
