"""Builds the server of nmt.serve: models, limits, and an index of similar sentences."""

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from nmt.configuration.model_settings import ServeSettings
from nmt.data.lines import find_file, read_lines
from nmt.foundation.errors import UserError
from nmt.inference.explanations.neighbors import read_index
from nmt.inference.text_classifier import TextClassifier
from nmt.inference.translator import Translator
from nmt.loading import text_classifier, translator_for
from nmt.serving.app import Server
from nmt.serving.http_server import run_server
from nmt.serving.limits import Limits
from nmt.serving.served_models import Models, ServedModel
from nmt.storage.checkpoint import read_model


def serve(settings: ServeSettings) -> None:
    """Runs the server until the process is stopped."""
    app = server_of(settings).app(origins=settings.origins or [], reload=settings.reload)
    if not settings.log_texts:
        # Warnings of nmt.inference quote input sentences.
        logging.getLogger("nmt.inference").setLevel(logging.ERROR)
    run_server(app, settings.host, settings.port)


def server_of(settings: ServeSettings) -> Server:
    """Returns the server with its models.

    Raises UserError if a model, the index or the client keys cannot be read.
    """
    limits = Limits(
        settings.max_characters,
        settings.max_texts,
        settings.max_bytes,
        settings.max_seconds,
        settings.max_open,
        settings.per_minute,
        # Without keys, any client may use the server.
        _read_keys(settings.keys) if settings.keys else [],
    )
    # A single worker, since one batch uses all CPU threads.
    pool = ThreadPoolExecutor(1, "model")
    models = Models(
        [
            ServedModel(
                name,
                path,
                partial(_loaded, settings),
                pool,
                wait=settings.wait / 1000,
                most=settings.batch,
            )
            for name, path in settings.called.items()
        ]
    )
    index = read_index(find_file(settings.index)) if settings.index else None
    return Server(models, limits, show_texts=settings.log_texts, index=index)


def _read_keys(name: str) -> list[str]:
    """Reads client keys from a file with one key per line.

    Raises UserError if the file contains no keys.
    """
    lines = read_lines(find_file(name))
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys:
        raise UserError(f"keys={name}: contains no keys; write one key per line")
    return keys


def _loaded(settings: ServeSettings, path: str) -> Translator | TextClassifier:
    """Loads a translator or a classifier.

    Raises UserError if the model does not read plain text.
    """
    if read_model(path).meta.get("command") == "classify":
        return text_classifier(path, settings.device)
    translator = translator_for(settings, path)
    columns = translator.tokenizer.columns
    if not columns.plain:
        raise UserError(
            f"model={path}: reads {columns.described}; nmt.serve supports plain text only"
        )
    return translator
