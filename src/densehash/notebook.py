"""Results in notebooks: tables and a curve, as HTML in the colours of the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from numbers import Integral, Real
from typing import Any

__all__ = ["curve", "facts", "table"]

_LONGEST = 80  # characters of a cell
_WIDTH, _HEIGHT = 420, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 30, 45  # margins around the curve


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], *, caption: str = "") -> str:
    """A table; everything in it is escaped.

    Parameters
    ----------
    header : names of the columns; if empty, there is no header line
    rows : the cells: numbers, strings, or None for an empty cell
    caption : text above the table

    Examples
    --------
    >>> table(["id"], [["<b>"]])
    '<table><thead><tr><th>id</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    names = "".join(f"<th>{escape(name)}</th>" for name in header)
    head = f"<thead><tr>{names}</tr></thead>" if names else ""
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table>{above}{head}<tbody>{lines}</tbody></table>"


def facts(about: Mapping[str, Any], *, caption: str = "") -> str:
    """A table of names and values, as ``info()`` of an index returns; None is left out.

    Examples
    --------
    >>> facts({"bytes_on_disk": 4096, "path": None})
    '<table><tbody><tr><td>bytes on disk</td><td>4,096</td></tr></tbody></table>'
    """
    rows = [
        (name.replace("_", " "), _end_of(value) if name == "path" else _in_words(value))
        for name, value in about.items()
        if value is not None
    ]
    return table([], rows, caption=caption)


def curve(
    points: Sequence[tuple[float, float]], *, chosen: tuple[float, float], x: str, y: str
) -> str:
    """A curve through points as an SVG image, with the chosen point marked.

    Parameters
    ----------
    points : at least one, in any order; y is not negative
    chosen : one of them
    x, y : names of the axes

    Examples
    --------
    >>> image = curve([(0.9, 80.0), (0.99, 20.0)], chosen=(0.9, 80.0), x="recall", y="speed")
    >>> image.startswith("<svg"), image.count("<circle")
    (True, 2)
    """
    ordered = sorted(points)
    left, right = ordered[0][0], ordered[-1][0]
    x_ticks, y_ticks = list(_ticks(left, right)), list(_ticks(0.0, max(one[1] for one in ordered)))
    left, right = min(left, x_ticks[0]), max(right, x_ticks[-1])

    def at(point: tuple[float, float]) -> tuple[float, float]:
        across = (point[0] - left) / (right - left)
        up = point[1] / y_ticks[-1]
        return (
            round(_LEFT + across * (_WIDTH - _LEFT - _RIGHT), 1),
            round(_HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM), 1),
        )

    parts = []
    for tick in x_ticks:
        across, _ = at((tick, 0.0))
        parts.append(_text(across, _HEIGHT - _BOTTOM + 16, f"{tick:g}", "middle"))
    for tick in y_ticks:
        _, down = at((left, tick))
        line = f'<path d="M{_LEFT} {down}H{_WIDTH - _RIGHT}" stroke="currentColor" opacity=".2"/>'
        parts += [line, _text(_LEFT - 6, down + 4, f"{tick:,g}", "end")]
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, x, "middle"))
    parts.append(_text(6, _TOP - 16, y, "start"))
    path = " ".join(f"{across},{down}" for across, down in map(at, ordered))
    parts.append(f'<polyline points="{path}" fill="none" stroke="currentColor"/>')
    for point in ordered:
        across, down = at(point)
        size, fill = (6, "#d95f02") if point == chosen else (3.5, "currentColor")
        told = escape(f"{x} {point[0]:.3f}, {point[1]:,.0f} {y}")
        parts.append(
            f'<circle cx="{across}" cy="{down}" r="{size}" fill="{fill}"><title>{told}</title>'
            "</circle>"
        )
    label = escape(f"{y} against {x}", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-size="12" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} ({kind})" for name, kind in value.items())
    if isinstance(value, list):
        return ", ".join(map(_in_words, value))
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _end_of(path: str) -> str:
    """A path that fits a cell: of a long one, the end is what one looks for."""
    return path if len(path) <= _LONGEST else f"…{path[1 - _LONGEST :]}"


def _cell(value: Any) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, bool) or not isinstance(value, Real):
        text = str(value)
        text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
        return f"<td>{escape(text)}</td>"
    number = f"{value}" if isinstance(value, Integral) else f"{float(value):.5g}"
    return f'<td style="text-align:right">{number}</td>'


def _text(across: float, down: float, text: str, anchor: str) -> str:
    place = f'x="{across}" y="{down}" text-anchor="{anchor}" fill="currentColor"'
    return f"<text {place}>{escape(text)}</text>"


def _ticks(low: float, high: float) -> Iterator[float]:
    """Three to seven round numbers around a range."""
    if high <= low:
        high = low + (abs(low) or 1.0) / 10
    rough = (high - low) / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * times for times in (1, 2, 5, 10) if size * times >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    for number in range(first, last + 1):
        yield round(number * step, 12)
