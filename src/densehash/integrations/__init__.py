"""Adapters for frameworks that search: one file each, imported only when it is needed.

What they have in common, documents in an index, is in ``documents.py``; an adapter offers it
through the classes of its framework.
"""

__all__: list[str] = []
