"""Evaluation from Python: `nmt.evaluate`."""

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
    """Scores of a model's translations, with sacreBLEU's signatures: BLEU, chrF, TER, exact match.

    model: a translator, or a run directory or checkpoint file
    data: a `datasets.Dataset`, or another mapping of names to lists of texts
    source, reference: names of columns; several references are scored together
    metric: options of the metrics; default: BLEU's tokeniser by the target language
    plugins: packages outside nmt whose code the model needs, and is permitted to run

    Raises UserError for a column that is not there, and for a model that classifies.
    """
    translator = model if isinstance(model, Translator) else load(model, plugins=plugins)
    if not isinstance(translator, Translator):
        raise UserError(f"model={model}: classifies, and is not evaluated by translations")
    columns = getattr(data, "column_names", None) or list(data)
    missing = [name for name in (source, *as_list(reference)) if name not in columns]
    if missing:
        raise UserError(f"data: no column {missing[0]}; there are {', '.join(map(str, columns))}")
    references = [list(data[name]) for name in as_list(reference)]
    return scores_of(translator, metric or Metric(), list(data[source]), references)[1]
