"""Ranking codes by the real margins of a query, instead of its bits."""

__all__: list[str] = []
