"""python -m nmt.export model=RUN_DIR format=onnx output=FOLDER

format=onnx: the model as ONNX graphs, with an example that translates without nmt or PyTorch. format=card: a folder with the
weights, the tokenizer and a model card, as the HuggingFace hub takes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from nmt.configuration.model_settings import ExportSettings


def run(settings: ExportSettings) -> None:
    """Writes the folder. Raises UserError if it is there already, or if the model cannot be exported."""
    import logging
    import shutil
    from pathlib import Path

    from nmt.exporting.card import results_of, write_card
    from nmt.foundation.errors import UserError
    from nmt.foundation.extras import advice, installed
    from nmt.loading import translator
    from nmt.storage import checkpoint as ckpt

    folder = Path(settings.output)
    if folder.exists():
        raise UserError(f"output={folder}: is there already; choose another name")
    saved = ckpt.read(ckpt.find_checkpoint(settings.model))
    try:
        if settings.format == "card":
            write_card(saved, results_of(settings.model), folder)
        elif settings.format == "html":
            from nmt.exporting.html import write_html

            ckpt.check_kind(saved, "train")
            write_html(translator(settings.model, device="cpu"), Path(settings.model).name, folder)
        else:
            if not installed("onnx"):
                raise UserError(advice("onnx"))
            from nmt.exporting.onnx import write_onnx

            ckpt.check_kind(saved, "train")
            write_onnx(translator(settings.model, device="cpu"), folder)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise UserError(
            f"output={folder}: cannot be written ({error.strerror or error})"
        ) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    log = logging.getLogger("nmt.export")
    if settings.format == "html":
        return log.info("%s: %.1f MB; open it in a browser", folder, folder.stat().st_size / 1e6)
    sizes = sum(file.stat().st_size for file in folder.iterdir())
    log.info("%s: %s files, %.1f MB", folder, len(list(folder.iterdir())), sizes / 1e6)


main = command_line("export", run)

if __name__ == "__main__":
    main()
