"""Kinds of index: one interface, one file each."""

from densehash.index.kinds.flat import Flat
from densehash.index.kinds.grouped import Grouped
from densehash.index.kinds.kind import Candidates, Kind, Question, scan
from densehash.index.kinds.multi import Multi

__all__ = ["Candidates", "Flat", "Grouped", "Kind", "Multi", "Question", "scan"]
