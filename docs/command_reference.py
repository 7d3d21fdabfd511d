"""A directive for Sphinx: every command of ``densehash``."""

from __future__ import annotations

from command_pages import page
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

__all__ = ["Commands", "setup"]


class Commands(SphinxDirective):
    """All commands, each in its own section."""

    def run(self) -> list[nodes.Node]:
        """Parse the page of all commands."""
        return self.parse_text_to_nodes(page(), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the directive known."""
    app.add_directive("densehash-commands", Commands)
    return {"parallel_read_safe": True}
