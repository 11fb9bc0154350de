"""Any data set of the HuggingFace hub that needs no loading script: id, config, splits, columns."""

from __future__ import annotations

from typing import Any

from nmt.data import Pairs, Splits
from nmt.data.table import columns
from nmt.errors import UserError


class HubData:
    """`path` is the data set's id (or a local folder of files), `name` its config; `source` and `target` are columns, or
    languages inside a `translation` column. `revision` picks a commit, e.g. for reproducibility."""

    def __init__(
        self,
        *,
        path: str,
        name: str | None = None,
        revision: str | None = None,
        train: str = "train",
        validation: str = "validation",
        test: str | None = "test",
        source: str,
        target: str,
    ) -> None:
        self.path, self.name, self.revision = path, name, revision
        self.splits, self.languages = (train, validation, test), (source, target)

    def load(self) -> Splits:
        train, validation, test = self.splits
        return Splits(
            train=self._pairs(train),
            validation=self._pairs(validation),
            test=None if test is None else self._pairs(test),
            languages=self.languages,
        )

    def _pairs(self, split: str) -> Pairs:
        import datasets

        what = f"{self.path}{f'/{self.name}' if self.name else ''}, split {split}"
        try:
            table: Any = datasets.load_dataset(self.path, self.name, split=split, revision=self.revision)
        except Exception as error:  # the library raises errors of many kinds, with the reason in the cause
            raise UserError(
                f"data set {what}: cannot be loaded: {error.__cause__ or error}. Check data.path, data.name and the "
                "split names; without a network, use local files (data=text, data=jsonl …)"
            ) from error
        return columns(table, *self.languages, name=what)
