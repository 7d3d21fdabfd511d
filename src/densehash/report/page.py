"""What a report shows, as plain data: sections of figures and tables."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Column", "Figure", "Page", "PlaneFigure", "Section", "Series", "Table"]


@dataclass(frozen=True)
class Series:
    """One line of a figure: the points of one method.

    Attributes
    ----------
    name : the method; it has the same colour and mark in all figures of a page
    x, y : numbers, equally many
    spread : standard deviation of each y over seeds; None if there is only one seed
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A figure of lines.

    Attributes
    ----------
    name : lower-case letters, digits and hyphens; names its files, and is unique in a page
    title, x_title, y_title, caption : the texts around it
    series : the lines; their names must differ
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
    """A figure of points in the plane, coloured by group, with straight lines between them.

    Attributes
    ----------
    name, title, caption : as in a Figure
    x, y : numbers, equally many
    groups : the group of each point, for example its code ``"01"``
    lines : the ends of each line, (x0, y0, x1, y1)
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
    title : its heading
    digits : digits after the decimal point; None for text
    best : "most" or "least" marks the best number of the column; "" marks none
    """

    title: str
    digits: int | None = None
    best: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of text and numbers; an empty cell is None.

    Attributes
    ----------
    name, title, caption : as in a Figure
    columns : one for each cell of a row
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
    title, text : the texts above them
    items : figures and tables, in order
    across : how many figures are side by side on a wide screen, 1 to 3; 0 chooses by their number
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
    title, text : the texts at the top
    sections : its sections, in order
    facts : names and values: the machine, versions, seeds, the command that made the page
    """

    title: str
    sections: tuple[Section, ...]
    text: str = ""
    facts: dict[str, str] = field(default_factory=dict)
