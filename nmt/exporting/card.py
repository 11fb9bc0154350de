"""A folder that others can use: the model, its tokenizer, and a model card with the HuggingFace hub's metadata. The hub
takes it as it is (`hf upload USER/NAME FOLDER`), and `model=hf:USER/NAME` loads it from there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

import nmt
from nmt.storage import checkpoint as ckpt
from nmt.storage.checkpoint import Checkpoint
from nmt.storage.files import write_atomically

CARD = """
# {title}

{what}, a recurrent network with attention{network}, trained with nmt {version}.

```python
import nmt

model = nmt.load("hf:USER/NAME")  # or the path of this folder
print({use})
```

## Figures

{figures}

## Data

{data}

What the text is, where it is from and under which terms it may be used: **fill this in**, and the `license` above.

## How it was trained

```yaml
{config}```

Parameters: {parameters:,}. Versions: {versions}.
"""


def write_card(saved: Checkpoint, results: Mapping[str, Any], folder: Path) -> None:
    """Writes the weights, without what only training needs, the tokenizer and the card into a new folder. `results`: the
    results.json of the run, or nothing."""
    folder.mkdir(parents=True)
    weights = {
        f"model/{name}": tensor
        for name, tensor in (saved.part("ema") or saved.part("model")).items()
    }
    fixed = {
        name: tensor for name, tensor in saved.tensors.items() if name.startswith("tokenizer/")
    }
    meta = {key: value for key, value in saved.meta.items() if key not in ("format", "training")}
    ckpt.write(folder / ckpt.BEST, meta, {**fixed, **weights})
    tokenizer = ckpt.tokenizer_from(saved)
    for name, content in zip(("source", "target"), tokenizer.models, strict=True):
        write_atomically(folder / f"{name}.model", content)
    write_atomically(
        folder / "README.md",
        _card(saved, results, sum(t.numel() for t in weights.values())).encode(),
    )


def _card(saved: Checkpoint, results: Mapping[str, Any], parameters: int) -> str:
    translates = saved.meta.get("command") != "classify"
    languages = [str(one) for one in saved.meta.get("languages") or []]
    config: Mapping[str, Any] = saved.meta["config"]
    scores: Mapping[str, Any] = results.get("scores") or {}
    shown = {
        name: (float(one["score"]), str(one.get("signature", "")))
        for name, one in scores.items()
        if isinstance(one, Mapping) and isinstance(one.get("score"), int | float)
    }
    kind = "translation" if translates else "text-classification"
    metadata = {
        "language": [one for one in languages if len(one.partition("_")[0]) in (2, 3)] or None,
        "license": "other",
        "library_name": "nmt",
        "pipeline_tag": kind,
        "tags": ["recurrent", "attention", "gru"],
        "model-index": [{
            "name": "model",
            "results": [{
                "task": {"type": kind}, "dataset": {"name": "test part", "type": "test"},
                "metrics": [
                    {"type": name, "value": round(value, 2), "args": signed} for name, (value, signed) in shown.items()
                ],
            }],
        }] if shown else None,
    }  # fmt: skip
    kept = {
        key: _shown(value)
        for key, value in config.items()
        if key not in ("run_dir", "resume", "sweep", "tracker")
    }
    figures = "\n".join(
        f"- {name}: {value:.2f}{f' (`{signed}`)' if signed else ''}"
        for name, (value, signed) in shown.items()
    )
    prints: Mapping[str, Any] = saved.meta.get("data") or {}
    decoder, attention = (_name(config.get(group)) for group in ("decoder", "attention"))
    versions: Mapping[str, Any] = saved.meta.get("versions") or {}
    text = CARD.format(
        title=" → ".join(languages) or "Labels of texts",
        what=f"Translates {' to '.join(languages)}" if translates else "Labels texts",
        network=f" ({decoder} with {attention})" if translates else "",
        version=nmt.__version__,
        use='model.translate(["…"])' if translates else 'model.classify(["…"])',
        figures=figures or "No test has been made.",
        data="\n".join(
            f"- {part}: fingerprint `{str(value)[:16]}…`" for part, value in prints.items()
        ),
        config=yaml.safe_dump(kept, sort_keys=False, allow_unicode=True),
        parameters=parameters,
        versions=", ".join(f"{name} {value}" for name, value in versions.items()),
    )
    head = yaml.safe_dump(
        {k: v for k, v in metadata.items() if v is not None}, sort_keys=False, allow_unicode=True
    )
    return f"---\n{head}---\n{text}"


def _shown(value: Any) -> Any:
    """A value of a configuration, with the names of files instead of where they are on this machine."""
    if isinstance(value, Mapping):
        return {key: _shown(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_shown(one) for one in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _name(group: Any) -> str:
    return (
        str(group["_target_"]).rpartition(".")[2].lower() if isinstance(group, Mapping) else "none"
    )


def results_of(path: str) -> Mapping[str, Any]:
    """The test results of a run directory; nothing if it has none."""
    try:
        found = json.loads((Path(path) / "results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
