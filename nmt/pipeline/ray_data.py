"""Translation of data sets with Ray Data, with one translator in each actor."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nmt.inference.input_lines import CHUNK
from nmt.loading import translator
from nmt.pipeline.ray_jobs import start_ray


class BatchTranslator:
    """Function for `map_batches` of Ray Data that adds a column of translations to a batch.

    model: run folder or checkpoint file, readable on all machines
    column: name of the column of texts
    added: name of the column of translations
    options: further arguments of `nmt.load`, such as device="cuda"
    """

    def __init__(self, model: str, column: str, added: str, **options: Any) -> None:
        self.translator = translator(model, **options)
        self.column = column
        self.added = added

    def __call__(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        lines = [str(line) for line in batch[self.column]]
        return {**batch, self.added: np.array(self.translator.translate(lines), dtype=object)}


def translate_dataset(
    model: str,
    source: str,
    output: str,
    *,
    actors: int = 1,
    column: str = "text",
    added: str = "translation",
    gpus: float = 0,
    **options: Any,
) -> None:
    """Translates text or Parquet files with Ray Data, and writes Parquet files in the same order.

    model: run folder or checkpoint file, readable on all machines
    source: text file with one text per line, folder of such files, or Parquet file; local or in an
        object store
    output: folder for the Parquet files, local or in an object store
    actors: number of Ray actors, each with one model and one CPU core
    column: name of the Parquet column with the texts; `text` for text files
    added: name of the output column with the translations
    gpus: number of GPUs of each actor
    options: further arguments of `nmt.load`, such as search="greedy"
    """
    start_ray()
    import ray.data

    ray.data.DataContext.get_current().execution_options.preserve_order = True
    # Tasks that read and write share the cores of the actors, which would keep all cores otherwise.
    shared = {"num_cpus": 0}
    if source.endswith(".parquet"):
        table = ray.data.read_parquet(source, ray_remote_args=shared)
    else:
        table = ray.data.read_text(source, drop_empty_lines=False, ray_remote_args=shared)
    translated = table.map_batches(
        BatchTranslator,
        fn_constructor_kwargs={"model": model, "column": column, "added": added, **options},
        batch_size=CHUNK,
        compute=ray.data.ActorPoolStrategy(size=actors),
        num_cpus=1,
        num_gpus=gpus,
    )
    translated.write_parquet(output, ray_remote_args=shared)
