"""Figures as specifications of Vega-Lite: plain dictionaries that contain the data.

Colours are arguments: a page passes variables of its style sheet, which follow the theme without a
redraw, and a file passes fixed colours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from densehash.report.looks import Look
from densehash.report.page import Figure, PlaneFigure

__all__ = ["chart_of", "config_of", "plain", "with_legend"]

# Other programs fail on these; a file name on a command line may contain any of them.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_NEW_LINE = re.compile("\r\n|[\u2028\u2029]")

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_MOST_MARKS = 8
"""Roughly how many marks are drawn on one line."""

_SHOWN = "indexof(hidden, datum.series) < 0"
_FADED = "isArray(hover.series) && indexof(hover.series, datum.series) < 0"
_AT = "isArray(hover.key) && indexof(hover.key, datum.key) >= 0"


def plain(text: str) -> str:
    """Text that a document can hold: other line ends become line feeds, control characters U+FFFD.

    Examples
    --------
    >>> plain("a" + chr(0) + "b") == "a" + chr(0xFFFD) + "b"
    True
    """
    return _UNPRINTABLE.sub("\ufffd", _NEW_LINE.sub("\n", text))


def config_of(theme: Mapping[str, str]) -> dict[str, Any]:
    """The configuration that all charts of a page share: fonts and the colours of axes.

    Parameters
    ----------
    theme : the colours ``paper``, ``ink``, ``muted``, ``rule`` and ``grid``, in CSS

    Examples
    --------
    >>> from densehash.report.looks import THEMES
    >>> config_of(THEMES["light"])["background"]
    '#ffffff'
    """
    return {
        "background": theme["paper"],
        "font": _FONT,
        "view": {"stroke": None},
        "padding": 4,
        "axis": {
            "domainColor": theme["muted"],
            "gridColor": theme["grid"],
            "labelColor": theme["muted"],
            "labelFontSize": 11,
            "labelOverlap": "greedy",
            "labelSeparation": 4,
            "tickColor": theme["muted"],
            "tickSize": 4,
            "titleColor": theme["ink"],
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 8,
        },
        # The title of the y axis is above it, so that the text is horizontal.
        "axisY": {
            "domain": False,
            "ticks": False,
            "labelPadding": 6,
            "titleAlign": "left",
            "titleAnchor": "end",
            "titleAngle": 0,
            "titleBaseline": "bottom",
            "titleX": 0,
            "titleY": -8,
        },
        "axisX": {"grid": False},
        "title": {
            "anchor": "start",
            "color": theme["ink"],
            "fontSize": 14,
            "fontWeight": 600,
            "frame": "group",
            "offset": 12,
        },
    }


def chart_of(
    figure: Figure | PlaneFigure,
    looks: Mapping[str, Look],
    colours: Mapping[str, str],
    theme: Mapping[str, str],
) -> dict[str, Any]:
    """The specification of one figure.

    Its parameter ``hidden`` is a list of the names of series that are not drawn. If the figure has
    lines, ``reach`` is where the y axis begins and ends.

    Parameters
    ----------
    figure : a figure that :func:`~densehash.report.check.check_page` accepts
    looks : the look of each series, or of each group of points
    colours : the colour of each series, or of each group of points, in CSS
    theme : see :func:`config_of`
    """
    if isinstance(figure, Figure):
        drawn = _lines(figure, looks, colours, theme)
    else:
        drawn = _plane(figure, looks, colours, theme)
    return {
        "description": plain(f"{figure.title}. {figure.caption}".strip()),
        "width": 420,
        "height": 280,
        "params": _params(),
        "transform": [{"filter": _SHOWN}],
        **drawn,
    }


def with_legend(
    chart: Mapping[str, Any],
    title: str,
    looks: Mapping[str, Look],
    colours: Mapping[str, str],
    theme: Mapping[str, str],
) -> dict[str, Any]:
    """The chart for a file of its own, with its title above it and its legend on its right.

    Parameters
    ----------
    chart : what :func:`chart_of` returned
    title : the text above it
    looks, colours : the look and colour of each series of the legend, in order
    theme : see :func:`config_of`
    """
    names = list(looks)
    y = {"field": "series", "type": "nominal", "sort": None, "axis": None}
    parts = [
        {
            "mark": {"type": "rule", "x": 0, "x2": 30},
            "encoding": {"y": y, **_stroke(names, looks, colours)},
        },
        {
            "mark": {"type": "point", "x": 15, "size": 70, "strokeWidth": 1, "opacity": 1},
            "encoding": {"y": y, **_marks(names, looks, colours, theme)},
        },
        {
            "mark": {
                "type": "text",
                "x": 40,
                "align": "left",
                "color": theme["ink"],
                "fontSize": 12,
            },
            "encoding": {"y": y, "text": {"field": "series"}},
        },
    ]
    legend = {
        "data": {"values": [{"series": plain(name), "width": looks[name].width} for name in names]},
        "width": 30,
        "height": 20 * len(names),
        "layer": parts if chart["autosize"]["type"] == "fit" else parts[1:],
    }
    # In a composed chart, only the outermost part may have these.
    inner = {key: chart[key] for key in chart if key not in ("params", "autosize", "padding")}
    return {
        "params": chart["params"],
        "padding": 12,
        "spacing": 24,
        "title": plain(title),
        "hconcat": [inner, legend],
    }


# --- lines --------------------------------------------------------------------------------


def _lines(
    figure: Figure,
    looks: Mapping[str, Look],
    colours: Mapping[str, str],
    theme: Mapping[str, str],
) -> dict[str, Any]:
    names = [series.name for series in figure.series]
    points = _points(figure, looks)
    xs = [point["x"] for point in points]
    ys = [
        number
        for point in points
        for number in (point["low"], point["y"], point["high"])
        if number is not None
    ]
    shared = {
        "x": {
            "field": "x",
            "type": "quantitative",
            "scale": _scale(_reach(xs), log=figure.log_x),
            "axis": {"title": plain(figure.x_title), **_ticks(xs, log=figure.log_x)},
        },
        "y": {
            "field": "y",
            "type": "quantitative",
            "scale": _scale({"expr": "reach"}, log=figure.log_y),
            "axis": {
                "title": plain(figure.y_title),
                "tickCount": 5,
                **_ticks(ys, log=figure.log_y, few=0),
            },
        },
    }
    stroke = _stroke(names, looks, colours)
    coloured = {"color": stroke["color"]}
    layers: list[dict[str, Any]] = []
    bounds = {"y": shared["y"] | {"field": "low"}, "y2": {"field": "high"}}
    if any(point["low"] is not None for point in points):
        layers.append(
            {
                "mark": {"type": "area"},
                "encoding": shared | bounds | coloured | _faded(0.16, 0.05),
            }
        )
    if any(point["alone"] for point in points):
        # A band needs two neighbouring points: a single point gets a bar.
        layers.append(
            {
                "transform": [{"filter": "datum.alone"}],
                "mark": {"type": "rule", "strokeWidth": 1.2},
                "encoding": shared | bounds | coloured | _faded(0.7, 0.1),
            }
        )
    layers += [
        {
            "mark": {"type": "line", "strokeCap": "butt", "strokeJoin": "round"},
            "encoding": shared | stroke | _faded(1, 0.18),
        },
        _mark_layer(names, looks, colours, theme, shared),
    ]
    return {
        "params": [*_params(), {"name": "reach", "value": _reach(ys)}],
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"name": "points", "values": points},
        "layer": layers,
    }


def _points(figure: Figure, looks: Mapping[str, Look]) -> list[dict[str, Any]]:
    """One row for each point, the boldest series last, because later ones are drawn on top."""
    floor = min((y for series in figure.series for y in series.y), default=0) / 2
    rows: list[dict[str, Any]] = []
    by_width = sorted(figure.series, key=lambda series: looks[series.name].width)
    for place, series in enumerate(by_width):
        spread = series.spread or (None,) * len(series.x)
        points = sorted(zip(series.x, series.y, spread, strict=True), key=lambda point: point[0])
        known = [point[2] is not None for point in points]
        every = max(len(points) // _MOST_MARKS, 1)
        for at, (x, y, sd) in enumerate(points):
            low = None if sd is None else y - sd
            if low is not None and figure.log_y:
                low = max(low, floor)  # a logarithmic axis cannot show zero
            beside = known[at - 1 : at] + known[at + 1 : at + 2]
            rows.append(
                {
                    "series": plain(series.name),
                    "key": len(rows),
                    "x": _number(x),
                    "y": _number(y),
                    "spread": None if sd is None else _number(sd),
                    "low": None if low is None else _number(low),
                    "high": None if sd is None else _number(y + sd),
                    "width": looks[series.name].width,
                    "alone": sd is not None and not any(beside),
                    # Marks on all of many points would hide the line: only some are drawn, at
                    # different places for different series.
                    "unmarked": (at + 2 * place) % every > 0,
                }
            )
    return rows


def _scale(domain: object, *, log: bool) -> dict[str, Any]:
    scale = {"type": "log"} if log else {"zero": False}
    return {**scale, "domain": domain, "nice": False, "padding": 8}


def _reach(numbers: Sequence[float]) -> list[float]:
    """The least and the largest number; widened if they are equal, which no axis can show."""
    least, most = min(numbers), max(numbers)
    room = 0 if least < most else abs(least) / 2 or 1
    return [least - room, most + room]


def _ticks(numbers: Sequence[float], *, log: bool, few: int = 8) -> dict[str, Any]:
    """Ticks at the numbers themselves if they are few, and short labels."""
    known = sorted(set(numbers))
    axis: dict[str, Any] = {}
    if 1 < len(known) <= few:
        axis["values"] = known
    elif log:
        first, last = math.floor(math.log10(known[0])), math.ceil(math.log10(known[-1]))
        steps = (1,) if last - first > 2 else (1, 2, 5)
        axis["values"] = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    if max(abs(number) for number in known) >= 1e5:
        axis["format"] = "~s"
    elif log:
        axis["format"] = "~g" if min(known) < 1e-4 else ",~r"
    return axis


# --- points in the plane ------------------------------------------------------------------


def _plane(
    figure: PlaneFigure,
    looks: Mapping[str, Look],
    colours: Mapping[str, str],
    theme: Mapping[str, str],
) -> dict[str, Any]:
    names = sorted(set(figure.groups))
    rows = [
        {"series": plain(group), "key": key, "x": _number(x), "y": _number(y)}
        for key, (x, y, group) in enumerate(zip(figure.x, figure.y, figure.groups, strict=True))
    ]
    # One unit has the same length on both axes, so that right angles look like right angles.
    reach = 0.54 * max(max(figure.x) - min(figure.x), max(figure.y) - min(figure.y)) or 1.0
    shared = {
        axis: {
            "field": axis,
            "type": "quantitative",
            "scale": {
                "domain": [
                    (max(numbers) + min(numbers)) / 2 - reach,
                    (max(numbers) + min(numbers)) / 2 + reach,
                ],
                "nice": False,
                "zero": False,
            },
            "axis": {"title": None, "tickCount": 5, "grid": False},
        }
        for axis, numbers in (("x", figure.x), ("y", figure.y))
    }
    marks = _mark_layer(names, looks, colours, theme, shared)
    marks["encoding"]["size"]["value"] = 44 if len(rows) <= 500 else 20
    lines = {
        "data": {
            "values": [
                dict(zip(("x", "y", "x2", "y2"), map(_number, line), strict=True))
                for line in figure.lines
            ]
        },
        "mark": {"type": "rule", "clip": True, "color": theme["ink"], "strokeWidth": 1.6},
        "encoding": shared | {"x2": {"field": "x2"}, "y2": {"field": "y2"}},
    }
    return {
        # The frame has a fixed size, so that the area inside it stays square.
        "autosize": {"type": "none"},
        "padding": {"left": 34, "right": 8, "top": 8, "bottom": 24},
        "width": 320,
        "height": 320,
        "data": {"name": "points", "values": rows},
        "layer": [marks, lines] if figure.lines else [marks],
    }


# --- parts of both ------------------------------------------------------------------------


def _params() -> list[dict[str, Any]]:
    return [{"name": "hidden", "value": []}]


def _mark_layer(
    names: Sequence[str],
    looks: Mapping[str, Look],
    colours: Mapping[str, str],
    theme: Mapping[str, str],
    shared: Mapping[str, Any],
) -> dict[str, Any]:
    """The marks; the one nearest to the pointer is larger and shows its values."""
    return {
        "params": [
            {
                "name": "hover",
                "select": {
                    "type": "point",
                    "on": "pointerover",
                    "clear": "pointerout",
                    "nearest": True,
                    "fields": ["series", "key"],
                },
            }
        ],
        "mark": {"type": "point", "strokeWidth": 1, "tooltip": {"content": "data"}},
        "encoding": {
            **shared,
            **_marks(names, looks, colours, theme),
            "size": {"condition": {"test": _AT, "value": 160}, "value": 64},
            "opacity": {
                "condition": [
                    {"test": _AT, "value": 1},
                    {"test": "datum.unmarked", "value": 0},
                    {"test": _FADED, "value": 0.18},
                ],
                "value": 1,
            },
        },
    }


def _stroke(
    names: Sequence[str], looks: Mapping[str, Look], colours: Mapping[str, str]
) -> dict[str, Any]:
    return {
        **_by_series("color", names, [colours[name] for name in names]),
        **_by_series("strokeDash", names, [list(looks[name].dash) or [1, 0] for name in names]),
        # Vega-Lite has no scale from names to widths: the widths are in the data.
        "strokeWidth": {"field": "width", "type": "quantitative", "scale": None},
    }


def _marks(
    names: Sequence[str],
    looks: Mapping[str, Look],
    colours: Mapping[str, str],
    theme: Mapping[str, str],
) -> dict[str, Any]:
    """A full mark has a thin edge in the background colour; a hollow mark is filled with it."""
    hollow = [looks[name].hollow for name in names]
    full = [colours[name] for name in names]
    paper = theme["paper"]
    return {
        **_by_series("fill", names, [paper if h else c for h, c in zip(hollow, full, strict=True)]),
        **_by_series(
            "stroke", names, [c if h else paper for h, c in zip(hollow, full, strict=True)]
        ),
        **_by_series("shape", names, [looks[name].mark for name in names]),
    }


def _by_series(channel: str, names: Sequence[str], values: Sequence[object]) -> dict[str, Any]:
    scale = {"domain": [plain(name) for name in names], "range": list(values)}
    return {channel: {"field": "series", "type": "nominal", "scale": scale, "legend": None}}


def _faded(full: float, faint: float) -> dict[str, Any]:
    """Full opacity, but faint while the pointer is on another series."""
    return {"opacity": {"condition": {"test": _FADED, "value": faint}, "value": full}}


def _number(number: Any) -> float:
    """A number as JSON can hold it, also if it is one of numpy's."""
    return int(number) if isinstance(number, Integral) else float(number)
