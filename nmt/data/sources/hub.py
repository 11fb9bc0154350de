"""Any data set of the HuggingFace hub that needs no loading script: id, config, splits, columns."""

from __future__ import annotations

import os
import socket
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nmt.data.sources.table import Table
from nmt.foundation.errors import UserError
from nmt.foundation.extras import advice, installed
from nmt.foundation.ranges import Share


class HubData(Table):
    """`path` is the data set's id (or a local folder of files), `name` its config. `revision` picks a commit, e.g. for
    reproducibility."""

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
            (train, validation, test), split=split, source=source, target=target, factors=factors, alignment=alignment,
            text=text, label=label, separator=separator,
        )  # fmt: skip
        self.path, self.name, self.revision = path, name, revision
        if not installed("datasets"):
            raise ValueError(advice("datasets"))

    def _open(self, part: str) -> tuple[Any, str]:
        if not Path(self.path).exists() and _offline():
            os.environ["HF_HUB_OFFLINE"] = (
                "1"  # what is in the cache still loads; nothing waits for a network
            )
        import datasets

        what = f"{self.path}{f'/{self.name}' if self.name else ''}, split {part}"
        try:
            return datasets.load_dataset(
                self.path, self.name, split=part, revision=self.revision
            ), what
        except (
            Exception
        ) as error:  # the library raises errors of many kinds, with the reason in the cause
            raise UserError(
                f"data set {what}: cannot be loaded: {error.__cause__ or error}. Check data.path, data.name and the "
                "split names; without a network, use local files (data=text, data=jsonl …)"
            ) from error


def _offline() -> bool:
    """Whether the hub cannot even be found. A proxy may find what this machine cannot."""
    if urllib.request.getproxies():
        return False
    host = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co").hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return True
    return False
