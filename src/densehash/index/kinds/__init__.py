"""Kinds: where rows lie, and which of them a query visits; one interface, one file each."""

from densehash.index.kinds.flat import Flat
from densehash.index.kinds.grouped import Grouped
from densehash.index.kinds.kind import Kind
from densehash.index.kinds.multi import Multi
from densehash.index.kinds.registry import KINDS, kind_from

__all__ = ["KINDS", "Flat", "Grouped", "Kind", "Multi", "kind_from"]
