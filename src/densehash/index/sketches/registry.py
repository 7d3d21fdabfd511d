"""All sketches: those of :data:`densehash.choices.SketchName`, and three that have no word there.

The sketch "signs" is the class ``Signs`` in ``signs.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, get_args

from densehash.choices import SketchName
from densehash.errors import FileError
from densehash.index.kinds import Kind
from densehash.index.sketches.bits import Bits
from densehash.index.sketches.codes import Codes
from densehash.index.sketches.products import Products
from densehash.index.sketches.sketch import Sketch
from densehash.index.sketches.unlearnt import Unlearnt

__all__ = ["SKETCHES", "sketch_from"]

SKETCHES: dict[str, type[Sketch]] = {
    name: getattr(import_module(f"{__package__}.{name}"), name.capitalize())
    for name in get_args(SketchName)[1:]  # the first is "auto"
}
"""Sketches by name."""
SKETCHES |= {sketch.name: sketch for sketch in (Products, Bits, Unlearnt)}


def sketch_from(content: Mapping[str, Any], kind: Kind) -> Sketch:
    """The sketch from a file; version 1 of the format has only codes, and names no sketch."""
    name = content.get("sketch", Codes.name)
    if not isinstance(name, str) or name not in SKETCHES:
        raise FileError(f"there is no sketch {name!r} of rows")
    return SKETCHES[name].from_settings(content, kind)
