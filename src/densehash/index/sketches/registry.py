"""All sketches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from densehash.errors import FileError
from densehash.index.kinds import Kind
from densehash.index.sketches.bits import Bits
from densehash.index.sketches.codes import Codes
from densehash.index.sketches.products import Products
from densehash.index.sketches.signs import Signs
from densehash.index.sketches.sketch import Sketch
from densehash.index.sketches.unlearnt import Unlearnt

__all__ = ["SKETCHES", "sketch_from"]

SKETCHES: dict[str, type[Sketch]] = {
    sketch.name: sketch for sketch in (Codes, Products, Signs, Bits, Unlearnt)
}
"""Sketches by name."""


def sketch_from(content: Mapping[str, Any], kind: Kind) -> Sketch:
    """The sketch from a file; version 1 of the format has only codes, and names no sketch."""
    name = content.get("sketch", Codes.name)
    if not isinstance(name, str) or name not in SKETCHES:
        raise FileError(f"there is no sketch {name!r} of rows")
    return SKETCHES[name].from_settings(content, kind)
