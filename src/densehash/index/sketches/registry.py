"""All sketches there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from densehash.hashers import Hasher
from densehash.index.sketches.codes import Codes
from densehash.index.sketches.sketch import Sketch

__all__ = ["SKETCHES", "sketch_from", "sketch_of"]

SKETCHES: dict[str, type[Sketch]] = {sketch.name: sketch for sketch in (Codes,)}
"""By name."""


def sketch_of(learnt: Hasher) -> Sketch:
    """The sketch that goes by what was learnt: codes, of a hasher.

    Examples
    --------
    >>> from densehash import LSH
    >>> sketch_of(LSH(8).fit([[0.0], [1.0]])).columns[0].shape
    (1,)
    """
    return Codes(learnt)


def sketch_from(content: Mapping[str, Any]) -> Sketch:
    """The sketch of an index file; version 1 of the format knows codes alone.

    Examples
    --------
    >>> from densehash.index import Index
    >>> from densehash.index.state import content_of
    >>> sketch_from(content_of(Index.build([[0.0], [1.0]], n_bits=8)._state)).n_bits
    8
    """
    return SKETCHES[Codes.name].from_settings(content)
