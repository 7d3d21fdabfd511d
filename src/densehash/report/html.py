"""A page as one HTML document that contains all that it needs: style, scripts and data.

Its texts come from results, and so from names of files, methods and machines. All of them are
escaped, and a policy in the document allows only its own two scripts, and no network address.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from itertools import groupby
from typing import Any

from densehash.report.charts import chart_of, config_of, plain
from densehash.report.looks import THEMES, Look, looks_of
from densehash.report.page import Column, Figure, Page, PlaneFigure, Section, Table

__all__ = ["html_of", "names_of"]

_LONG = 40
"""From how many characters on the text of a cell may be broken into lines."""


def html_of(page: Page, library: str) -> str:
    """The document of a page.

    Parameters
    ----------
    page : a page that :func:`~densehash.report.check.check_page` accepts
    library : the JavaScript of Vega, Vega-Lite and Vega-Embed

    Examples
    --------
    >>> html_of(Page("Results", ()), "")[:15]
    '<!doctype html>'
    """
    theme = {name: f"var(--{name})" for name in THEMES["light"]}
    palette = _Palette(page)
    charts = [
        {
            "name": item.name,
            "x": plain(item.x_title) if isinstance(item, Figure) else "x",
            "y": plain(item.y_title) if isinstance(item, Figure) else "y",
            "square": isinstance(item, PlaneFigure),
            "spec": chart_of(item, palette.looks(item), palette.colours(item), theme),
        }
        for section in page.sections
        for item in section.items
        if not isinstance(item, Table)
    ]
    data = {"config": config_of(theme) | {"background": "transparent"}, "charts": charts}
    # Inside a function, so that the names of the library do not become global.
    scripts = [f"(()=>{{{_script(library)}\n}})()", _script(_part("page.js"))]
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{_text(page.title)}</title>",
            f"<style>\n{palette.style()}{_part('page.css')}</style>",
            "</head>",
            "<body>",
            '<a class="skip" href="#content">Skip to the results</a>',
            f"<header><h1>{_text(page.title)}</h1>{_paragraphs(page.text, 'lead')}</header>",
            _side(page, palette),
            '<main id="content">',
            "<noscript><p>The figures are drawn by scripts, which do not run here.</p></noscript>",
            *_sections(page, palette),
            _facts(page.facts),
            "</main>",
            '<div id="tip" aria-hidden="true" hidden></div>',
            f'<script type="application/json" id="data">{_json(data)}</script>',
            *(f"<script>{script}</script>" for script in scripts),
            "</body>",
            "</html>",
            "",
        ]
    )


def names_of(figure: Figure | PlaneFigure) -> list[str]:
    """The names in the legend of a figure: its methods, or the groups of its points.

    Examples
    --------
    >>> names_of(PlaneFigure("plane", "Codes", (0, 1, 2), (0, 1, 0), ("1", "0", "1")))
    ['0', '1']
    """
    if isinstance(figure, PlaneFigure):
        return sorted(set(figure.groups))
    return [series.name for series in figure.series]


class _Palette:
    """The looks of all methods of a page, and the style-sheet variables for their colours."""

    def __init__(self, page: Page) -> None:
        items = [item for section in page.sections for item in section.items]
        lines = [item for item in items if isinstance(item, Figure)]
        planes = [item for item in items if isinstance(item, PlaneFigure)]
        self.methods = looks_of(name for item in lines for name in names_of(item))
        # Groups of points are not methods: each such figure starts with the first look again.
        self._planes = {item.name: looks_of(names_of(item)) for item in planes}
        every = [
            *self.methods.values(),
            *(look for of in self._planes.values() for look in of.values()),
        ]
        pairs = dict.fromkeys((look.light, look.dark) for look in every)
        self._variables = {pair: f"--c{at}" for at, pair in enumerate(pairs)}

    def looks(self, figure: Figure | PlaneFigure) -> dict[str, Look]:
        of = self._planes[figure.name] if isinstance(figure, PlaneFigure) else self.methods
        return {name: of[name] for name in names_of(figure)}

    def colours(self, figure: Figure | PlaneFigure) -> dict[str, str]:
        return {name: self.colour(look) for name, look in self.looks(figure).items()}

    def colour(self, look: Look) -> str:
        return f"var({self._variables[look.light, look.dark]})"

    def style(self) -> str:
        """Both themes as variables. Printing always uses the light one."""
        light, dark = (
            "".join(
                [
                    *(f"--{name}:{colour};" for name, colour in THEMES[theme].items()),
                    *(f"{name}:{pair[at]};" for pair, name in self._variables.items()),
                ]
            )
            for at, theme in enumerate(("light", "dark"))
        )
        return (
            f":root{{color-scheme:light;{light}}}\n"
            f"@media screen and (prefers-color-scheme:dark){{"
            f":root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
            f"@media screen{{:root[data-theme=dark]{{color-scheme:dark;{dark}}}}}\n"
        )

    def swatch(self, look: Look, *, line: bool = True) -> str:
        """The line and the mark of a method, as in the figures."""
        colour = self.colour(look)
        dash = f' stroke-dasharray="{" ".join(map(str, look.dash))}"' if look.dash else ""
        fill, edge = ("var(--paper)", colour) if look.hollow else (colour, "none")
        width, at = (30, 15) if line else (12, 6)
        stroke = (
            f'<line x1="0" y1="6" x2="30" y2="6" stroke="{colour}" '
            f'stroke-width="{look.width}"{dash}/>'
        )
        return (
            f'<svg class="swatch" width="{width}" height="12" viewBox="0 0 {width} 12" '
            f'aria-hidden="true">{stroke if line else ""}<path transform="translate({at} 6) '
            f'scale(4)" d="{look.mark}" fill="{fill}" stroke="{edge}" stroke-width="0.3"/></svg>'
        )


# --- parts of the document ----------------------------------------------------------------


def _side(page: Page, palette: _Palette) -> str:
    entries = "".join(
        f'<li><a href="#section-{number}">{_text(section.title)}</a></li>'
        for number, section in enumerate(page.sections, start=1)
    )
    if page.facts:
        entries += '<li><a href="#facts">How it was made</a></li>'
    methods = "".join(_legend_button(name, look, palette) for name, look in palette.methods.items())
    return (
        f'<aside><nav aria-label="Contents"><h2>Contents</h2><ol>{entries}</ol></nav>'
        '<section id="methods" aria-label="Methods in all figures">'
        '<div class="row"><h2>Methods</h2>'
        '<span class="tools"><button type="button" id="all">All</button>'
        '<button type="button" id="none">None</button>'
        '<button type="button" id="theme" aria-pressed="false">Dark</button></span></div>'
        f'<div class="legend">{methods}</div></section></aside>'
    )


def _legend_button(name: str, look: Look, palette: _Palette, *, line: bool = True) -> str:
    return (
        f'<button type="button" aria-pressed="true" data-series="{_text(name)}">'
        f"{palette.swatch(look, line=line)}<span>{_text(name)}</span></button>"
    )


def _sections(page: Page, palette: _Palette) -> Iterator[str]:
    for number, section in enumerate(page.sections, start=1):
        parts = []
        for is_table, group in groupby(section.items, lambda item: isinstance(item, Table)):
            items = list(group)
            if not is_table:
                across = section.across or {1: 1, 2: 2, 4: 2}.get(len(items), 3)
                parts.append(f'<div class="figures across-{across}">')
            for item in items:
                if isinstance(item, Table):
                    parts.append(_table(item, palette))
                else:
                    parts.append(_figure(item, palette))
            if not is_table:
                parts.append("</div>")
        yield _section(section, number, "\n".join(parts))


def _section(section: Section, number: int, inside: str) -> str:
    return (
        f'<section id="section-{number}" aria-labelledby="section-{number}-title">'
        f'<h2 id="section-{number}-title">{_text(section.title)}</h2>'
        f"{_paragraphs(section.text)}\n{inside}\n</section>"
    )


def _figure(figure: Figure | PlaneFigure, palette: _Palette) -> str:
    name, title = figure.name, _text(figure.title)
    plane = isinstance(figure, PlaneFigure)
    legend = "".join(
        _legend_button(series, look, palette, line=not plane)
        for series, look in palette.looks(figure).items()
    )
    kind = "square" if plane else "lines"
    return (
        f'<figure id="{name}" aria-labelledby="{name}-title">'
        f'<h3 id="{name}-title">{title}</h3>'
        f'<div class="plot {kind}"></div>'
        f'<div class="legend" role="group" aria-label="Shown in {title}">{legend}</div>'
        f"{_caption(figure.caption)}"
        '<div class="below"><details><summary>Data</summary><div class="scroll" tabindex="0" '
        f'role="region" aria-label="Data of {title}"></div></details>'
        '<span class="tools">'
        f'<button type="button" data-save="svg" aria-label="Save {title} as SVG">SVG</button>'
        f'<button type="button" data-save="png" aria-label="Save {title} as PNG">PNG</button>'
        "</span></div></figure>"
    )


def _caption(text: str) -> str:
    """The caption, without a number, because a page may mention the paper's figure numbers."""
    return f"<figcaption>{_text(text)}</figcaption>" if text else ""


def _table(table: Table, palette: _Palette) -> str:
    best = [_best(table, at) for at in range(len(table.columns))]
    heads = "".join(
        f'<th scope="col"{_kind(column)}{_first(column)}>'
        f'<button type="button">{_text(column.title)}</button></th>'
        for column in table.columns
    )
    rows = "".join(
        "<tr>"
        + "".join(
            _cell(cell, column, shown=best[at], row_head=at == 0, palette=palette)
            for at, (cell, column) in enumerate(zip(row, table.columns, strict=True))
        )
        + "</tr>\n"
        for row in table.rows
    )
    name, title = table.name, _text(table.title)
    return (
        f'<figure id="{name}" class="table" aria-labelledby="{name}-title">'
        f'<h3 id="{name}-title">{title}</h3>'
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{name}-title">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table></div>"
        f"{_caption(table.caption)}</figure>"
    )


def _cell(
    cell: str | float | None,
    column: Column,
    *,
    shown: str | None,
    row_head: bool,
    palette: _Palette,
) -> str:
    tag, scope = ("th", ' scope="row"') if row_head else ("td", "")
    if cell is None:
        return f'<{tag}{scope}{_kind(column)} data-none aria-label="none">–</{tag}>'
    if isinstance(cell, str):
        look = palette.methods.get(cell)
        mark = palette.swatch(look, line=False) if look else ""
        kind = ' class="long"' if len(cell) > _LONG else _kind(column)
        return f"<{tag}{scope}{kind}>{mark}{_text(cell)}</{tag}>"
    text = _shown(cell, column)
    inside = f"<strong>{text}</strong>" if text == shown else text
    return f'<{tag}{scope}{_kind(column)} data-value="{float(cell)!r}">{inside}</{tag}>'


def _shown(number: float, column: Column) -> str:
    text = f"{number:,}" if column.digits is None else f"{number:,.{column.digits}f}"
    if not text.strip("-0.,"):
        text = text.lstrip("-")  # never shows minus zero
    return text.replace("-", "\N{MINUS SIGN}")


def _best(table: Table, at: int) -> str | None:
    """The best number of a column as text: numbers that look the same are equally good."""
    column = table.columns[at]
    numbers = [row[at] for row in table.rows]
    known = [number for number in numbers if number is not None and not isinstance(number, str)]
    if not column.best or not known:
        return None
    return _shown(max(known) if column.best == "most" else min(known), column)


def _kind(column: Column) -> str:
    return "" if column.digits is None else ' class="number"'


def _first(column: Column) -> str:
    """The first sort order: if more is better, the largest comes to the top."""
    return ' data-first="descending"' if column.best == "most" else ""


def _facts(facts: Mapping[str, str]) -> str:
    if not facts:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{_text(name)}</th><td>{_text(value)}</td></tr>\n'
        for name, value in facts.items()
    )
    return (
        '<section id="facts" aria-labelledby="facts-title">'
        f'<h2 id="facts-title">How it was made</h2><table><tbody>\n{rows}</tbody></table></section>'
    )


def _paragraphs(text: str, kind: str = "text") -> str:
    parts = [part.strip() for part in plain(text).split("\n\n")]
    return "".join(f'<p class="{kind}">{_text(part)}</p>' for part in parts if part)


# --- text, scripts and data ---------------------------------------------------------------


def _text(text: str) -> str:
    return escape(plain(text), quote=True)


def _json(data: Mapping[str, Any]) -> str:
    """JSON without any character that could end a script, in any browser."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _script(source: str) -> str:
    """JavaScript that a script element can hold; an added backslash does not change a string."""
    return re.sub(r"<(/script|!--)", r"<\\\1", source, flags=re.IGNORECASE)


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _part(name: str) -> str:
    return files("densehash.report").joinpath(name).read_text(encoding="utf-8")
