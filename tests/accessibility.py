"""Accessibility of HTML pages in Chromium, checked by axe-core: contrast, names, roles, structure."""

import sys
import tarfile
from pathlib import Path

import pytest

SHARE = Path(sys.prefix, "share")
"""Folder into which `scripts/setup --all` puts the package of axe-core."""
RUN = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations.flatMap(
  ({ id, nodes }) => nodes.map((node) => `${id}: ${node.html} ${node.failureSummary}`)
)"""


def violations(page):
    """Returns the violations on a page of playwright, one text per element; [] if there is none.

    Checks all rules of axe-core: WCAG 2.2 A and AA, and best practices. Invisible elements are not
    checked, so each state of a page needs a call of its own. Skips the test without axe-core.
    """
    packages = sorted(SHARE.glob("axe-core-*.tgz"))
    if not packages:
        pytest.skip("axe-core not found; scripts/setup --all installs it with npm")
    if not page.evaluate("'axe' in globalThis"):
        with tarfile.open(packages[-1]) as package:
            page.evaluate(package.extractfile("package/axe.min.js").read().decode())
    return page.evaluate(RUN)
