"""Reads Parquet files."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.data.formats import Rows, present
from nmt.data.lines import CHUNK, reading


def read(file: Path, columns: Sequence[str]) -> Iterator[Rows]:
    """Yields the rows of a Parquet file, with class names from the metadata of `datasets`."""
    import pyarrow.parquet

    with reading(file, " as parquet"), pyarrow.parquet.ParquetFile(file) as opened:
        schema = opened.schema_arrow
        requested = present(schema.names, columns)
        classes = class_names(_features(schema))
        for batch in opened.iter_batches(CHUNK, columns=requested):
            values = {name: batch.column(name).to_pylist() for name in requested}
            yield Rows(str(file), schema.names, values, class_names=classes)


def _features(schema: Any) -> Mapping[str, Any]:
    if b"huggingface" not in (schema.metadata or {}):
        return {}
    # `datasets` is imported only for files that it wrote, since the import takes a second
    import datasets

    features: Mapping[str, Any] = datasets.Features.from_arrow_schema(schema)
    return features


def class_names(features: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Returns the class names of label columns from the features of a Hugging Face data set."""
    classes = {
        # A list feature wraps the feature of its items.
        column: getattr(getattr(feature, "feature", feature), "names", None)
        for column, feature in features.items()
    }
    return {column: names for column, names in classes.items() if names}
