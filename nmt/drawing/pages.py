"""HTML pages from the templates in nmt/drawing/templates.

The pages load nothing from the network, adapt to the screen width, and support dark mode and
keyboard navigation.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@functools.cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals["zip"] = zip
    return templates


def render(template: str, **values: Any) -> Markup:
    """Returns HTML rendered from a template.

    template: file name of the template without .html
    values: variables of the template; strings are escaped, except for results of this function
    """
    from markupsafe import Markup

    return Markup(_templates().get_template(f"{template}.html").render(values))


def page(title: str, note: str, sections: Iterable[Markup]) -> bytes:
    """Returns a complete HTML page.

    title: title and heading
    note: text below the heading
    sections: HTML sections of the page
    """
    return render("page", title=title, note=note, sections=sections).encode()
