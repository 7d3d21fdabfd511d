"""Sketches: what is kept of a row, and how rows are ranked by it; one interface, one file each."""

from densehash.index.sketches.codes import Codes
from densehash.index.sketches.registry import SKETCHES, sketch_from, sketch_of
from densehash.index.sketches.sketch import Candidates, Column, Sketch

__all__ = ["SKETCHES", "Candidates", "Codes", "Column", "Sketch", "sketch_from", "sketch_of"]
