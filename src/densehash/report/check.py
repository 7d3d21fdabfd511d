"""Checks whether a page can be drawn, before anything is written."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from numbers import Real

from densehash.errors import InputError
from densehash.report.charts import plain
from densehash.report.page import Figure, Page, PlaneFigure, Table

__all__ = ["check_page"]

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def check_page(page: Page) -> None:
    """Refuse a page with clashing names, different lengths or numbers that are not finite."""
    names: set[str] = set()
    for section in page.sections:
        for item in section.items:
            if not _NAME.fullmatch(item.name):
                raise InputError(
                    "names of figures and tables must be lower-case letters and digits with "
                    f"hyphens between, got {item.name!r}"
                )
            if item.name in names:
                raise InputError(f"two figures or tables of the page are named {item.name!r}")
            names.add(item.name)
            if isinstance(item, Figure):
                _check_figure(item)
            elif isinstance(item, PlaneFigure):
                _check_plane(item)
            else:
                _check_table(item)


def _check_figure(figure: Figure) -> None:
    where = f"figure {figure.name!r}"
    if not figure.series:
        raise InputError(f"{where} must have at least 1 series, got none")
    names = [plain(series.name) for series in figure.series]
    if len(set(names)) < len(names):
        raise InputError(f"no two series of {where} may have one name, got {names}")
    for series in figure.series:
        what = f"series {series.name!r} of {where}"
        if not series.x:
            raise InputError(f"{what} must have at least 1 point, got none")
        _check_numbers(series.x, f"x of {what}", positive=figure.log_x)
        _check_numbers(series.y, f"y of {what}", positive=figure.log_y)
        _check_length(series.y, series.x, f"y of {what}", "x")
        if series.spread:
            _check_length(series.spread, series.x, f"spread of {what}", "x")
            known = [number for number in series.spread if number is not None]
            _check_numbers(known, f"spread of {what}")
            if min(known, default=0) < 0:
                raise InputError(f"spread of {what} must not be negative, got {min(known)}")


def _check_plane(figure: PlaneFigure) -> None:
    where = f"figure {figure.name!r}"
    if not figure.x:
        raise InputError(f"{where} must have at least 1 point, got none")
    _check_numbers(figure.x, f"x of {where}")
    _check_numbers(figure.y, f"y of {where}")
    _check_length(figure.y, figure.x, f"y of {where}", "x")
    _check_length(figure.groups, figure.x, f"groups of {where}", "x")
    for line in figure.lines:
        _check_length(line, "....", f"a line of {where}", "two points")
        _check_numbers(line, f"lines of {where}")


def _check_table(table: Table) -> None:
    where = f"table {table.name!r}"
    if not table.columns:
        raise InputError(f"{where} must have at least 1 column, got none")
    for column in table.columns:
        if column.best not in ("", "most", "least"):
            raise InputError(
                f"best of column {column.title!r} of {where} must be 'most', 'least' or '', "
                f"got {column.best!r}"
            )
    for row in table.rows:
        _check_length(row, table.columns, f"a row of {where}", "columns")
        for column, cell in zip(table.columns, row, strict=True):
            what = f"column {column.title!r} of {where}"
            if cell is None or isinstance(cell, str):
                continue
            _check_numbers([cell], what)


def _check_numbers(numbers: Sequence[object], what: str, *, positive: bool = False) -> None:
    for number in numbers:
        # Python counts bool as a number, but here it is probably a mistake.
        if isinstance(number, bool) or not isinstance(number, Real) or not math.isfinite(number):
            raise InputError(f"{what} must be finite numbers, got {number!r}")
        if positive and number <= 0:
            raise InputError(f"{what} must be positive on a logarithmic axis, got {number!r}")


def _check_length(one: Sequence[object], other: Sequence[object], what: str, than: str) -> None:
    if len(one) != len(other):
        raise InputError(f"{what} must be as many as {than}, {len(other)}, got {len(one)}")
