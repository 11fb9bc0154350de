"""Parquet files."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.data.formats import Rows, present
from nmt.data.lines import CHUNK
from nmt.foundation.errors import UserError


def read(file: Path, columns: Sequence[str]) -> Iterator[Rows]:
    """The rows of a file, with the names of classes that the `datasets` library writes into it."""
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(file) as opened:
            schema = opened.schema_arrow
            asked = present(schema.names, columns)
            classes = class_names(_features(schema))
            first = 1
            for batch in opened.iter_batches(CHUNK, columns=asked):
                values = {name: batch.column(name).to_pylist() for name in asked}
                yield Rows(str(file), schema.names, values, first, classes)
                first += batch.num_rows
    except Exception as error:  # pyarrow raises errors of many types
        raise UserError(f"{file}: cannot be read as parquet: {error}") from error


def _features(schema: Any) -> Mapping[str, Any]:
    if b"huggingface" not in (schema.metadata or {}):
        return {}
    import datasets

    features: Mapping[str, Any] = datasets.Features.from_arrow_schema(schema)
    return features


def class_names(features: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Names of the classes of a column, or of its lists, from the features of a data set."""
    classes = {}
    for column, feature in features.items():
        names = getattr(getattr(feature, "feature", feature), "names", None)
        if names:
            classes[column] = names
    return classes
