"""Reads Parquet files."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.data.formats import Rows, present
from nmt.data.lines import CHUNK, reading


def read(file: Path, columns: Sequence[str]) -> Iterator[Rows]:
    """Yields the rows of a Parquet file. If the package `datasets` wrote the file, class names of
    labels are read from the metadata in the file.
    """
    import pyarrow.parquet

    with reading(file, " as parquet"), pyarrow.parquet.ParquetFile(file) as opened:
        schema = opened.schema_arrow
        requested = present(schema.names, columns)
        features = {}
        if b"huggingface" in (schema.metadata or {}):
            # `datasets` is imported only for files that it wrote, since the import takes a second
            import datasets

            features = datasets.Features.from_arrow_schema(schema)
        classes = class_names(features)
        for batch in opened.iter_batches(CHUNK, columns=requested):
            yield Rows(
                name=str(file),
                names=schema.names,
                values={name: batch.column(name).to_pylist() for name in requested},
                class_names=classes,
            )


def class_names(features: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Returns the class names of label columns from the features of a Hugging Face data set."""
    classes = {
        # A list feature wraps the feature of its items.
        column: getattr(getattr(feature, "feature", feature), "names", None)
        for column, feature in features.items()
    }
    return {column: names for column, names in classes.items() if names}
