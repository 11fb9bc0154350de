"""Implements `nmt.evaluate` for calls from Python."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt.analysis.evaluation import scores_of
from nmt.data import as_list
from nmt.foundation.errors import UserError
from nmt.inference.translator import Translator
from nmt.loading import load
from nmt.metric import Metric, Result


def evaluate(
    model: Translator | str | Path,
    data: Any,
    *,
    source: str,
    reference: str | Sequence[str],
    metric: Metric | None = None,
    plugins: Sequence[str] = (),
) -> dict[str, Result]:
    """Returns the scores of a model's translations, with sacreBLEU signatures: BLEU, chrF, TER,
    exact match.

    model: a translator, a run folder or a checkpoint file
    data: a `datasets.Dataset`, or another mapping from column names to lists of strings
    source: name of the source column
    reference: names of the reference columns, which are scored together
    metric: metric options; by default, BLEU's tokeniser depends on the target language
    plugins: packages outside nmt whose code the model may use

    Raises UserError if a column is missing or the model is a classifier.
    """
    translator = model if isinstance(model, Translator) else load(model, plugins=plugins)
    if not isinstance(translator, Translator):
        raise UserError(f"model={model}: is a classifier, must be a translation model")
    columns = getattr(data, "column_names", None) or list(data)
    missing = [name for name in (source, *as_list(reference)) if name not in columns]
    if missing:
        raise UserError(
            f"data: column {missing[0]} not found (available: {', '.join(map(str, columns))})"
        )
    references = [list(data[name]) for name in as_list(reference)]
    return scores_of(translator, metric or Metric(), list(data[source]), references)[1]
