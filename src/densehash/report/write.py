"""Writes a page: one HTML file for reading, or its figures as pictures."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from densehash.disk import write_file
from densehash.errors import FileError, MissingExtraError
from densehash.report.charts import chart_of, config_of, with_legend
from densehash.report.check import check_page
from densehash.report.html import html_of, names_of
from densehash.report.looks import THEMES, looks_of
from densehash.report.page import Figure, Page, PlaneFigure, Table

__all__ = ["write_figures", "write_report"]

_PIXELS = 2
"""Pixels of a picture for each pixel of the page, so that it is sharp in print too."""


def write_report(page: Page, path: str | os.PathLike[str]) -> None:
    """Write a page as one HTML file that opens without a network.

    The file is written as a whole or not at all: an old one is replaced only at the end.
    It needs the extra ``report``.

    Parameters
    ----------
    page : what to show
    path : the file, in a folder that exists

    Raises
    ------
    InputError : if names clash, lengths differ or a number is not finite
    FileError : if the file cannot be written
    MissingExtraError : if the extra is not installed

    Examples
    --------
    >>> from densehash.report import Figure, Section, Series
    >>> figure = Figure("map", "MAP", "bits", "MAP", (Series("DSH", (16, 32), (0.2, 0.3)),))
    >>> page = Page("Results", (Section("Accuracy", (figure,)),))
    >>> write_report(page, "report.html")  # doctest: +SKIP
    """
    check_page(page)
    write_file(Path(path), html_of(page, _library(_vega())).encode("utf-8"))


def write_figures(page: Page, folder: str | os.PathLike[str]) -> list[Path]:
    """Write each figure of a page as NAME.svg and NAME.png, on white.

    It needs the extra ``report``.

    Parameters
    ----------
    page : what to show
    folder : created if it does not exist

    Returns
    -------
    the files, in the order of the page

    Raises
    ------
    InputError, FileError, MissingExtraError : as :func:`write_report`

    Examples
    --------
    >>> from densehash.report import Figure, Section, Series
    >>> figure = Figure("map", "MAP", "bits", "MAP", (Series("DSH", (16, 32), (0.2, 0.3)),))
    >>> page = Page("Results", (Section("Accuracy", (figure,)),))
    >>> write_figures(page, "figures")  # doctest: +SKIP
    [PosixPath('figures/map.svg'), PosixPath('figures/map.png')]
    """
    check_page(page)
    vega = _vega()
    where = Path(folder)
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{where} cannot be made: {error.strerror}") from error
    items = [item for section in page.sections for item in section.items]
    methods = looks_of(
        name for item in items if isinstance(item, Figure) for name in names_of(item)
    )
    written = []
    for item in items:
        if isinstance(item, Table):
            continue
        names = names_of(item)
        looks = looks_of(names) if isinstance(item, PlaneFigure) else methods
        spec = _picture(item, {name: looks[name] for name in names})
        for suffix, data in (
            (".svg", vega.vegalite_to_svg(spec).encode("utf-8")),
            (".png", vega.vegalite_to_png(spec, scale=_PIXELS)),
        ):
            written.append(where / (item.name + suffix))
            write_file(written[-1], data)
    return written


def _picture(figure: Figure | PlaneFigure, looks: dict[str, Any]) -> dict[str, Any]:
    theme = THEMES["light"]
    colours = {name: look.light for name, look in looks.items()}
    chart = chart_of(figure, looks, colours, theme)
    return with_legend(chart, figure.title, looks, colours, theme) | {"config": config_of(theme)}


def _vega() -> ModuleType:
    try:
        import vl_convert  # noqa: PLC0415  an extra
    except ImportError as error:
        raise MissingExtraError(
            "a report needs the package vl-convert-python: pip install densehash[report]"
        ) from error
    return vl_convert


@cache
def _library(vega: ModuleType) -> str:
    """Vega, Vega-Lite and Vega-Embed as one script; bundling them takes seconds."""
    library: str = vega.javascript_bundle()
    return library
