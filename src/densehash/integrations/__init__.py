"""Adapters for frameworks that search: one file each, imported when it is asked for.

What they have in common, documents in an index, is in ``documents.py``; an adapter says the same in
the words of its framework.
"""

__all__: list[str] = []
