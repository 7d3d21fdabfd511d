"""The words that public parameters take, as types: a type checker finds ``metric="euclidian"``.

Whoever passes a word on, in a function of their own, can say so in its signature. For kinds and
sketches, these are the registries, too: a word other than "auto" is the name of a file in
``densehash/index/kinds`` or ``densehash/index/sketches``, and of the class in it.

Examples
--------
>>> from densehash.choices import MetricName
>>> def build(rows: list[list[float]], metric: MetricName = "l2") -> None: ...
"""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__: list[str] = []

MetricName: TypeAlias = Literal["l2", "cosine", "ip"]
"""What nearest means: least Euclidean distance, least angle, or largest inner product."""

KindName: TypeAlias = Literal["auto", "flat", "grouped", "multi"]
"""Where rows lie, and which of them a query visits."""

SketchName: TypeAlias = Literal["auto", "codes", "signs"]
"""What an index keeps of a row beside its vector."""

Rerank: TypeAlias = Literal["auto", "exact", "asymmetric"]
"""How candidates are ranked in the end."""

VectorType: TypeAlias = Literal["float32", "float16", "uint8", "int8"]
"""How numbers of kept vectors are stored."""

GraphMode: TypeAlias = Literal["connectivity", "distance"]
"""What a sparse graph of neighbours holds."""
