"""One offline page of results: figures that answer the pointer, tables that sort."""

from densehash.report.page import Column, Figure, Page, PlaneFigure, Section, Series, Table

__all__ = ["Column", "Figure", "Page", "PlaneFigure", "Section", "Series", "Table"]
