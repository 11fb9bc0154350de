"""Builds the server of nmt.serve: models, limits, and an index of similar sentences."""

import logging
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE

from nmt.configuration.translation_settings import ServeSettings
from nmt.data.lines import find_file
from nmt.foundation import plugins
from nmt.foundation.errors import UsageError, UserError
from nmt.foundation.json_log import choose_format, chosen_formatter
from nmt.foundation.processes import prepare_process
from nmt.inference.explanations.neighbors import read_index
from nmt.inference.text_classifier import TextClassifier
from nmt.inference.translator import Translator
from nmt.loading import text_classifier, translator_for
from nmt.serving.app import Server
from nmt.serving.http_server import run_server
from nmt.serving.limits import KeyFile, Limits
from nmt.serving.monitoring import ServerMetrics
from nmt.serving.served_models import Models, ServedModel
from nmt.storage.checkpoint import read_model

log = logging.getLogger("nmt.serve")
ZONED = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S%z")
"""Format of the server's log lines, with the time zone."""


def serve(settings: ServeSettings) -> None:
    """Runs the server until the process is stopped."""
    # Messages of uvicorn have the format of nmt's messages.
    logging.getLogger("uvicorn").handlers = logging.getLogger("nmt").handlers
    make_app = partial(application, settings)
    if settings.workers > 1:
        # Wrong models are reported once, before any process starts.
        for path in settings.called.values():
            read_model(path)
        make_app = partial(worker_application, settings, plugins.named())
    run_server(
        make_app,
        settings.host,
        settings.port,
        workers=settings.workers,
        proxies=settings.proxies or [],
    )


def worker_application(settings: ServeSettings, permitted: Sequence[str]) -> ASGIApp:
    """Returns the ASGI application of one of several server processes.

    permitted: names of the packages that `--plugins` permits

    A UserError ends this process, and thereby the server.
    """
    choose_format(settings.log == "json")
    prepare_process(settings.threads or max(1, (os.cpu_count() or 1) // settings.workers))
    plugins.permit(permitted)
    try:
        return application(settings)
    except UserError as error:
        log.error("%s", error)
        sys.exit(STARTUP_FAILURE)


def application(settings: ServeSettings) -> ASGIApp:
    """Returns the ASGI application with its models.

    Raises UserError if a model, the index or the file of API keys cannot be read.
    """
    for handler in logging.getLogger("nmt").handlers:
        if type(handler) is logging.StreamHandler and chosen_formatter() is None:
            handler.setFormatter(ZONED)
    if not settings.access_log:
        logging.getLogger("nmt.serve.access").setLevel(logging.ERROR)
    if not settings.log_texts:
        # Warnings of nmt.inference quote input sentences.
        logging.getLogger("nmt.inference").setLevel(logging.ERROR)
    return server_of(settings).app(
        origins=settings.origins or [], reload=settings.reload, drain=settings.drain
    )


def server_of(settings: ServeSettings) -> Server:
    """Loads the models and returns the server.

    Raises UserError if a model, the index or the file of API keys cannot be read.
    """
    limits = Limits(
        settings.max_characters,
        settings.max_texts,
        settings.max_bytes,
        settings.max_seconds,
        settings.max_open,
        settings.per_minute,
        # Without keys, any client may use the server.
        KeyFile(find_file(settings.keys, f"keys={settings.keys}")) if settings.keys else None,
    )
    metrics = ServerMetrics()
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
                metrics=metrics,
            )
            for name, path in settings.called.items()
        ]
    )
    index = (
        read_index(find_file(settings.index, f"index={settings.index}")) if settings.index else None
    )
    encoders = {served.model.encoder_hash for served in models.translators}
    if index is not None and index.model not in encoders:
        log.warning(
            "index=%s: not created with the encoder of a served model, so it is not used; create "
            "the index again with nmt.index",
            settings.index,
        )
    return Server(
        models,
        limits,
        metrics,
        show_texts=settings.log_texts,
        index=index,
        guard_metrics=settings.metrics_key,
    )


def _loaded(settings: ServeSettings, path: str) -> Translator | TextClassifier:
    """Loads a translator or a classifier.

    Raises UserError if the model does not read plain text.
    """
    if read_model(path).meta.get("command") == "classify":
        if settings.precision not in ("float32", "auto"):
            message = "model=%s: precision=%s has no effect on a model of nmt.classify"
            log.warning(message, path, settings.precision)
        return text_classifier(path, settings.device)
    translator = translator_for(settings, path, mapped=settings.workers > 1)
    columns = translator.tokenizer.columns
    if not columns.plain:
        raise UsageError(
            f"model={path}: reads {columns.described}; nmt.serve supports plain text only"
        )
    return translator
