"""python -m nmt.serve model=RUN_DIR [port=8000] [model=[A,B] names=[a,b]] [keys=FILE] …

A page and an API for other programs at http://127.0.0.1:8000, by LibreTranslate's requests and answers
(nmt/serving/README.md). Ctrl-C or SIGTERM ends it when what was asked is answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from nmt.configuration.model_settings import ServeSettings
    from nmt.inference.text_classifier import TextClassifier
    from nmt.serving.app import Server
    from nmt.serving.served_models import Models, ServedTranslator


def run(settings: ServeSettings) -> None:
    """Serves until it is told to end."""
    import logging
    import signal
    import socket

    from nmt.foundation.errors import UserError
    from nmt.foundation.extras import advice, installed

    absent = [
        package
        for package in ("starlette", "uvicorn", "prometheus_client")
        if not installed(package)
    ]
    if absent:
        raise UserError(advice(absent[0]))
    import uvicorn

    log = logging.getLogger("nmt.serve")
    server = _server(settings)
    place = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        place.bind((settings.host, settings.port))
    except OSError as error:
        place.close()
        raise UserError(
            f"host={settings.host} port={settings.port}: {error.strerror or error}; choose others"
        ) from error
    place.listen(128)
    app = server.app(origins=settings.origins or [], reload=settings.reload)
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    log.info("http://%s:%s", shown, place.getsockname()[1])
    if not settings.log_texts:
        logging.getLogger("nmt.inference").setLevel(logging.ERROR)  # its warnings quote the input
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=60
    )
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # uvicorn gives it on when all is answered: then this has ended well
        signal.signal(number, lambda *_: None)
    uvicorn.Server(config).run(sockets=[place])


def _server(settings: ServeSettings) -> Server:
    from nmt.data.lines import find_file, read_lines
    from nmt.foundation.errors import UserError
    from nmt.inference.explanations.neighbors import read_index
    from nmt.serving.app import Server
    from nmt.serving.limits import Limits

    keys: list[str] = []
    if settings.keys:
        lines = read_lines(find_file(settings.keys))
        keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not keys:
            raise UserError(f"keys={settings.keys}: there is no key in it; write one a line")
    limits = Limits(
        settings.max_characters, settings.max_texts, settings.max_bytes, settings.max_seconds, settings.max_open,
        settings.per_minute, keys,
    )  # fmt: skip
    index = read_index(find_file(settings.index)) if settings.index else None
    return Server(_models(settings), limits, show_texts=settings.log_texts, index=index)


def _models(settings: ServeSettings) -> Models:
    from concurrent.futures import ThreadPoolExecutor

    from nmt.serving.served_models import Models, ServedModel

    pool = ThreadPoolExecutor(1, "model")  # one batch at a time; it uses all threads of the machine

    def load(path: str) -> ServedTranslator | TextClassifier:
        return _loaded(settings, path)

    wait, most = settings.wait / 1000, settings.batch
    return Models(
        [
            ServedModel(name, path, load, pool, wait=wait, most=most)
            for name, path in settings.called.items()
        ]
    )


def _loaded(settings: ServeSettings, path: str) -> ServedTranslator | TextClassifier:
    """A model of either kind. Raises UserError if it cannot be used, or reads other than plain text."""
    from nmt.configuration import build
    from nmt.foundation.errors import UserError
    from nmt.loading import text_classifier, translator_for
    from nmt.serving.served_models import ServedTranslator
    from nmt.storage.checkpoint import find_checkpoint, read

    if read(find_checkpoint(path)).meta.get("command") == "classify":
        return text_classifier(path, settings.device)
    translator = translator_for(settings, path)
    if not translator.tokenizer.columns.plain:
        raise UserError(
            f"model={path}: reads {translator.tokenizer.columns.described}; a server translates plain texts"
        )
    whole = {
        **settings.search,
        **({"n_best": settings.search["width"]} if "n_best" in settings.search else {}),
    }
    return ServedTranslator(
        translator, translator.with_search(build.make({"search": whole}, "search"))
    )


main = command_line("serve", run)

if __name__ == "__main__":
    main()
