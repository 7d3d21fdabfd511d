"""Sketches: what is kept of a row, and how rows are ranked by it; one interface, one file each."""

from densehash.index.sketches.bits import Bits
from densehash.index.sketches.codes import Codes
from densehash.index.sketches.products import Products
from densehash.index.sketches.registry import SKETCHES, sketch_from
from densehash.index.sketches.signs import Signs
from densehash.index.sketches.sketch import Candidates, Column, Sketch
from densehash.index.sketches.unlearnt import Plan, Unlearnt

__all__ = [
    "SKETCHES",
    "Bits",
    "Candidates",
    "Codes",
    "Column",
    "Plan",
    "Products",
    "Signs",
    "Sketch",
    "Unlearnt",
    "sketch_from",
]
