"""One offline page of results: figures that respond to the pointer, tables that can be sorted."""

from densehash.report.page import Column, Figure, Page, PlaneFigure, Section, Series, Table
from densehash.report.write import write_figures, write_report

__all__ = [
    "Column",
    "Figure",
    "Page",
    "PlaneFigure",
    "Section",
    "Series",
    "Table",
    "write_figures",
    "write_report",
]
