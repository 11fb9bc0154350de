"""Export of a folder for the Hugging Face Hub: weights, tokenizer, and a model card with metadata.

`hf upload USER/NAME FOLDER` publishes the folder, and `model=hf:USER/NAME` loads the published
model.
"""

import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from nmt.exporting import write_tokenizer
from nmt.foundation.configurations import NOT_LEARNT
from nmt.inference.model_facts import SIDES, network_parts
from nmt.storage import checkpoint as ckpt
from nmt.storage.files import write_atomically
from nmt.tokenizer import Tokenizer

CARD = """---
{metadata}---

# {title}

{purpose} The model is a recurrent network ({network}), trained with nmt {version}.

```python
import nmt

model = nmt.load("hf:USER/NAME"{plugins})  # or the path of the folder
print(model.{method}(["…"]))
```

## Results

{figures}

## Data

{data}

**To fill in**: description of the training data, its source and its licence, and the `license` in
the metadata above.

## Training configuration

```yaml
{config}```

Parameters: {parameters:,}. Versions: {versions}.
"""


def write_card(saved: ckpt.Checkpoint, results: Mapping[str, Any], folder: Path) -> None:
    """Writes the weights, the tokenizer and the model card into an empty folder.

    saved: checkpoint; its training state is left out
    results: content of results.json of the run, or empty
    folder: path of the empty folder
    """
    # `weights` is the moving average if the checkpoint has one.
    tensors = {f"model/{name}": tensor for name, tensor in saved.weights.items()} | {
        name: tensor
        for name, tensor in saved.tensors.items()
        if name.startswith(("tokenizer/", "lexicon/"))
    }
    meta = {key: value for key, value in saved.meta.items() if key not in ("format", "training")}
    ckpt.write(folder / ckpt.BEST, meta, tensors)
    tokenizer = ckpt.tokenizer_from(saved)
    write_tokenizer(tokenizer, folder)
    parameters = sum(tensor.numel() for tensor in saved.weights.values())
    card = card_text(saved.meta, tokenizer, results, parameters)
    write_atomically(folder / "README.md", card.encode())


def card_text(
    meta: Mapping[str, Any], tokenizer: Tokenizer, results: Mapping[str, Any], parameters: int
) -> str:
    is_classifier = meta.get("command") == "classify"
    languages = [str(language) for language in meta.get("languages") or []]
    config: Mapping[str, Any] = meta["config"]
    scores: Mapping[str, Any] = results.get("scores", {})
    data_part = str(results.get("part", "test"))
    figures = [
        f"- {data_part} {name}: {entry['score']:.2f} (`{entry.get('signature', '')}`)".removesuffix(
            " (``)"
        )
        for name, entry in scores.items()
    ]
    title = "Text classification" if is_classifier else " → ".join(languages) or "Translation"
    purpose = "Classifies texts." if is_classifier else f"Translates {' to '.join(languages)}."
    if not tokenizer.columns.plain:
        purpose += f" An input line has {tokenizer.columns.described}."
    versions: Mapping[str, Any] = meta.get("versions") or {}
    plugins = [str(name) for name in meta.get("plugins", [])]
    return CARD.format(
        metadata=_yaml(_metadata(meta, tokenizer, scores, data_part)),
        title=title,
        purpose=purpose,
        network=network_parts(config),
        plugins=f", plugins={plugins}" if plugins else "",
        version=versions.get("nmt", "(version unknown)"),
        method="classify" if is_classifier else "translate",
        figures="\n".join(figures) or "The model has no test results.",
        data="\n".join(
            f"- {k}: fingerprint `{str(v)[:16]}…`" for k, v in (meta.get("data") or {}).items()
        ),
        config=_yaml({k: _portable(v) for k, v in config.items() if k not in NOT_LEARNT}),
        parameters=parameters,
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
    )


def _metadata(
    meta: Mapping[str, Any], tokenizer: Tokenizer, scores: Mapping[str, Any], part: str
) -> dict[str, Any]:
    """Returns the metadata of the model card, from the checkpoint and the test results."""
    config: Mapping[str, Any] = meta["config"]
    task = "text-classification" if meta.get("command") == "classify" else "translation"
    if tokenizer.columns.picture:
        task = "image-to-text"
    # The hub accepts language codes of two or three small letters, without script or region.
    languages = meta.get("languages") or []
    codes = [re.split("[-_]", str(language))[0].lower() for language in languages]
    cells = {
        group["cell"]
        for group in config.values()
        if isinstance(group, Mapping) and group.get("cell")
    }
    result = {
        "task": {"type": task},
        "dataset": {"name": f"{part} part", "type": part},
        "metrics": [
            {
                "type": name,
                "value": round(entry["score"], 2),
                "args": str(entry.get("signature", "")),
            }
            for name, entry in scores.items()
        ],
    }
    metadata = {
        "language": [code for code in codes if len(code) in (2, 3) and code not in SIDES],
        "license": "other",
        "library_name": "nmt",
        "pipeline_tag": task,
        "tags": [
            "recurrent",
            *(["attention"] if _attends(config) else []),
            *sorted(cells),
        ],
        "model-index": [{"name": "model", "results": [result]}] if scores else None,
    }
    return {key: value for key, value in metadata.items() if value}


def _yaml(values: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)


def _attends(config: Mapping[str, Any]) -> bool:
    target = str((config.get("pooling") or {}).get("_target_", ""))
    # The configuration comes from a file, so only modules of the package are imported.
    if target.startswith("nmt.model.pooling."):
        return bool(getattr(pkgutil.resolve_name(target), "attends", False))
    return bool(config.get("attention"))


def _portable(value: Any) -> Any:
    """Returns a configuration value with absolute paths shortened to file names."""
    if isinstance(value, Mapping):
        return {key: _portable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_portable(item) for item in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value
