"""What a report shows, as plain data: sections of figures and tables, before any drawing."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Column", "Figure", "Page", "PlaneFigure", "Section", "Series", "Table"]


@dataclass(frozen=True)
class Series:
    """One line of a figure: the points of one method.

    Attributes
    ----------
    name : the method; it has one colour and one mark in all figures of a page
    x, y : as many numbers each
    spread : standard deviation of each y over seeds, or None where there is one seed only
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Figure:
    """Lines over one axis.

    Attributes
    ----------
    name : lower-case letters, digits and hyphens; the name of its files; unique in a page
    title, x_title, y_title, caption : what is written beside it
    series : the lines; no two of one name
    log_x, log_y : whether an axis is logarithmic
    """

    name: str
    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    caption: str = ""
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class PlaneFigure:
    """Points in the plane, coloured by group, and straight lines between them.

    Attributes
    ----------
    name, title, caption : as of a Figure
    x, y : as many numbers each
    groups : the group of each point, say its code ``"01"``
    lines : ends of each line, (x0, y0, x1, y1)
    """

    name: str
    title: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    groups: tuple[str, ...]
    lines: tuple[tuple[float, float, float, float], ...] = ()
    caption: str = ""


@dataclass(frozen=True)
class Column:
    """How a column of a table is shown.

    Attributes
    ----------
    title : what its head says
    digits : digits after the point, None for text
    best : "most" or "least" marks the best number of the column, "" marks none
    """

    title: str
    digits: int | None = None
    best: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of text and numbers; None where there is nothing.

    Attributes
    ----------
    name, title, caption : as of a Figure
    columns : as many as each row has cells
    rows : the cells
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str | float | None, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """Figures and tables that belong together.

    Attributes
    ----------
    title, text : what is written above them
    items : figures and tables, in order
    across : how many figures stand side by side on a wide screen, 1 to 3; 0 lets their number tell
    """

    title: str
    items: tuple[Figure | PlaneFigure | Table, ...]
    text: str = ""
    across: int = 0


@dataclass(frozen=True)
class Page:
    """A whole report.

    Attributes
    ----------
    title, text : what is written at the top
    sections : in order
    facts : names and values: the machine, versions, seeds, the command that made it
    """

    title: str
    sections: tuple[Section, ...]
    text: str = ""
    facts: dict[str, str] = field(default_factory=dict)
