"""The site. `make docs` builds it from docs/, examples/ and CHANGELOG.md into build/site.

Sphinx reads from the root of the repository, so that examples and the changelog are pages, too;
``include_patterns`` says which files are. Nothing on a page comes from another host.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

project = "densehash"
author = "The densehash authors"
copyright = author  # noqa: A001  the name that Sphinx needs
release = version = version_of("densehash")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "command_reference",
]

root_doc = "docs/home"
include_patterns = ["docs/*.md", "docs/reference/*.md", "examples/*.py", "CHANGELOG.md"]
exclude_patterns = [".*", "build", "dist", "src", "tests", "bench", "native"]
exclude_patterns += ["examples/sentence_search.py"]  # a program, not a notebook

smartquotes_action = "D"  # dashes; quotes stay as they are
nitpicky = True
# Types in signatures that have no page here: those of Python, numpy and others, and unions.
# Types of densehash without a page are internal.
_INNER = r"densehash\.(source|store|datasets\.catalog|index\.(queries|state))\."
nitpick_ignore_regex = [("py:(class|obj|data)", rf"(?!densehash\.).*|{_INNER}.*")]
suppress_warnings = [
    "misc.highlighting_failure",  # SQL of other systems
    "myst-nb.lexer",  # of notebooks that are not run, as in `make docs-links`
]

myst_heading_anchors = 4  # [text](page.md#heading), as on GitHub
myst_links_external_new_tab = False

# Notebooks are scripts, with cells after "# %%"; they are run when the site is built:
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "cache"  # runs again if its text has changed, or build/ is gone
nb_execution_cache_path = str(Path(__file__).parents[1] / "build" / "notebooks")
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {
    name: name for name in ("AnyFilter", "ArrayLike", "DaskCollection", "NDArray", "VectorsLike")
}
autodoc_mock_imports = ["langchain_core", "llama_index", "pyspark"]
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
napoleon_google_docstring = False
napoleon_use_ivar = True  # otherwise fields of a named tuple would appear twice
napoleon_use_rtype = False

html_theme = "furo"
html_title = "densehash"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
# Summaries of search results are fetched, which browsers refuse for pages that are opened from a
# disk.
html_show_search_summary = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e4f", "color-brand-content": "#0b6e4f"},
    "dark_css_variables": {"color-brand-primary": "#5ec99d", "color-brand-content": "#5ec99d"},
}
copybutton_exclude = ".linenos, .gp, .go"
linkcheck_timeout = 20
linkcheck_retries = 2


def _write_entrance(app: Sphinx, error: Exception | None) -> None:
    """Redirect index.html to the first page; docs/index.md is the page about the index."""
    if error is None and app.builder.name == "html":
        home = f"{root_doc}.html"
        (Path(app.outdir) / "index.html").write_text(
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>densehash</title>'
            f'<meta http-equiv="refresh" content="0; url={home}"><a href="{home}">densehash</a>',
            encoding="utf-8",
        )


def _without_types(
    _app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]
) -> None:
    """Keep "X : real array (n, d), finite" as one text, in which napoleon would look for a type."""
    section, after = "", []
    for number, line in enumerate(lines):
        below = lines[number + 1] if number + 1 < len(lines) else ""
        if below and set(below) == {"-"}:
            section = line
        named = re.fullmatch(r"([\w*, ]+) : (.*)", line)
        if named and section in ("Parameters", "Attributes", "Returns", "Yields", "Raises"):
            after += [named[1], f"    {named[2]}"]
        else:
            after.append(line)
    lines[:] = after


def setup(app: Sphinx) -> None:
    """Add the hooks before napoleon reads a docstring, and after the last page."""
    app.connect("autodoc-process-docstring", _without_types, priority=400)
    app.connect("build-finished", _write_entrance)
