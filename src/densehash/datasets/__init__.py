"""Vectors to work on: the field's file formats, the paper's sets, and sets inside dependencies."""

__all__: list[str] = []
