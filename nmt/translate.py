"""python -m nmt.translate model=RUN_DIR [input=FILE] [output=FILE] [search=beam search.width=5] [format=jsonl] …

One line out for every line in, in order. Without input=, stdin is translated as it arrives; at a terminal, line by line.
"""

from __future__ import annotations

from typing import Any

from nmt.configuration.command_line import command_line


def check(config: dict[str, Any]) -> None:
    """Raises UserError listing everything that is wrong with the configuration."""
    from nmt.configuration.settings import check

    check(config, "translate")


def run(config: dict[str, Any]) -> None:
    """Translates a file or stdin."""
    from pathlib import Path

    from nmt.inference import formats
    from nmt.inference import streams
    from nmt.configuration.allocator import keep_freed_memory
    from nmt.configuration.settings import load_translator
    from nmt.foundation.errors import UserError
    from nmt.training.progress import set_up_logging

    set_up_logging()
    keep_freed_memory()
    show, form = config["attention_map"], config["format"]
    source = streams.Source(
        config["input"], config["errors"], prefix=config["prefix"], constraints=config["constraints"]
    )
    sink = streams.Sink(config["output"], config["resume"], numbered=form == "moses")
    if sink.complete:
        return
    translator = load_translator(config)
    others = [config["compare"]] if isinstance(config["compare"], str) else config["compare"] or []
    beside = {path: load_translator({**config, "model": path, "shares": None}) for path in others}
    for path, other in beside.items():
        if not other.attends:
            raise UserError(f"compare={path}: this model has no attention to show (decoder=fixed)")
    if (show or form == "pharaoh") and not translator.attends:
        what = f"attention_map={show}" if show else "format=pharaoh"
        raise UserError(f"{what}: this model has no attention to show (decoder=fixed)")
    seen = []
    number = sink.lines
    with sink as write:
        for chunk in source.chunks(skip=sink.lines):
            try:
                translations = translator.translations(chunk.lines, chunk.constraints)
                write(formats.lines(form, translator, number, chunk.lines, translations))
            except ValueError as error:  # the search cannot do what the constraints or the model ask for
                raise UserError(str(error)) from error
            number += len(chunk.lines)
            if show:
                pairs = zip(chunk.lines, translations, strict=True)
                seen += [(line, found.text, found.hypotheses[0].tokens) for line, found in pairs if found.hypotheses]
    if show:
        from nmt.report.attention_map import attention_maps, write_map

        lines, texts, tokens = zip(*seen, strict=True) if seen else ((), (), ())
        first = [config["model"]] if isinstance(config["model"], str) else config["model"]
        short = {path: Path(path).name for path in (*first, *beside)}
        names = short if len(set(short.values())) == len(short) else {path: path for path in short}
        models = {" + ".join(names[path] for path in first): translator}
        models |= {names[path]: other for path, other in beside.items()}
        write_map(attention_maps(models if len(models) > 1 else {"": translator}, lines, texts, tokens), Path(show))


main = command_line("translate", check, run)

if __name__ == "__main__":
    main()
