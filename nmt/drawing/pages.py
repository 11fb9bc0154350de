"""HTML pages from the templates in nmt/drawing/templates.

The pages load nothing from the network, adapt to the screen width, and support dark mode and
keyboard navigation.
"""

import functools
import platform
import re
import shlex
import sys
import time
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from markupsafe import Markup

import nmt
from nmt.foundation.devices import processor_name


@functools.cache
def _templates() -> Any:
    """Returns the Jinja environment of the templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals["zip"] = zip
    templates.filters |= {
        "anchor": lambda title: re.sub(r"\W+", "-", title.lower()).strip("-"),
        # whether a word consists of letters that stay upright in a vertical line
        "upright": lambda word: all(unicodedata.east_asian_width(c) in "WF" for c in word),
    }
    return templates


def render(template: str, **values: Any) -> Markup:
    """Returns HTML rendered from a template.

    template: file name of the template without .html
    values: variables of the template; strings are escaped, except for results of this function
    """
    return Markup(_templates().get_template(f"{template}.html").render(values))


def page(
    title: str,
    note: str,
    sections: Iterable[Markup],
    *,
    lead: Sequence[str] = (),
    contents: Sequence[str] = (),
    facts: Sequence[str] = (),
) -> bytes:
    """Returns a complete HTML page.

    title: title and heading
    note: text below the heading
    sections: HTML sections of the page
    lead: sentences with the main result, between the heading and the note
    contents: titles of the sections, shown as links
    facts: sentences at the end of the page, such as the command line that wrote the page
    """
    return render(
        "page",
        title=title,
        note=note,
        sections=sections,
        lead=lead,
        contents=contents,
        facts=facts,
    ).encode("utf-8", "replace")


def origin() -> list[str]:
    """Returns sentences for the end of a page: the command line, the versions of nmt, PyTorch and
    Python, the processor, and the date."""
    processor = processor_name(torch.device("cpu"))
    # The program is a Python file of nmt, or a program of the user.
    is_of_nmt = Path(sys.argv[0]).resolve().parent == Path(nmt.__file__).resolve().parent
    command = shlex.join(["python", "-m", f"nmt.{Path(sys.argv[0]).stem}", *sys.argv[1:]])
    return [
        *([f"Command: {command}"] if is_of_nmt else []),
        f"Written by nmt {nmt.__version__}, PyTorch {torch.__version__}, "
        f"Python {platform.python_version()}, {processor}, {time.strftime('%Y-%m-%d')}.",
    ]
