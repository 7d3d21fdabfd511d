"""The sketch of an index that has learnt nothing yet: rows are ranked by their vectors.

An index that was created empty has this sketch until it has enough rows. It keeps only vectors, and
a search compares every row. Its :class:`Plan` says what it will learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from densehash.checks import check_choice, check_integer
from densehash.choices import SketchName
from densehash.errors import FileError
from densehash.index.kinds import KINDS, Flat, Kind
from densehash.index.queries import Prepared
from densehash.index.segment import VECTOR_TYPES, Segment
from densehash.index.sketches.signs import SignQueries, check_size
from densehash.index.sketches.sketch import Column, Sketch
from densehash.rows import Floats

__all__ = ["LARGEST_SEED", "Plan", "Unlearnt"]

LARGEST_SEED = 2**32 - 1
"""The largest seed of numpy's RandomState."""


@dataclass(frozen=True)
class Plan:
    """When an index learns, and what: the settings of :meth:`densehash.Index.build`.

    Examples
    --------
    >>> Plan(learn_at=1000).sketch
    'auto'
    """

    learn_at: int
    sketch: str = "auto"
    hasher: str = "auto"
    n_bits: int | None = None
    kind: str = "auto"
    keep_vectors: bool | str = True
    n_groups: int | None = None
    groups_a_row: int | None = None
    n_tables: int | None = None
    random_state: int | None = None

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Plan:
        """The plan from a file, checked."""
        names = {field.name for field in fields(cls)}
        if {*content} != names:
            raise FileError(f"a plan has {', '.join(sorted(names))}, got {', '.join(content)}")
        check_integer(content["learn_at"], "learn_at", 2)
        check_choice(content["sketch"], "sketch", get_args(SketchName))
        check_choice(content["kind"], "kind", ("auto", *KINDS))
        if not isinstance(content["hasher"], str):
            raise FileError("the hasher of a plan must be a name")
        if not isinstance(content["keep_vectors"], bool):
            check_choice(content["keep_vectors"], "keep_vectors", VECTOR_TYPES)
        for name in ("n_bits", "n_groups", "groups_a_row", "n_tables"):
            if content[name] is not None:
                check_integer(content[name], name, 1)
        if content["random_state"] is not None:
            check_integer(content["random_state"], "random_state", 0, LARGEST_SEED)
        return cls(**content)


class Unlearnt(Sketch):
    """Only vectors.

    Parameters
    ----------
    n_features : features of a row
    plan : when the index learns, and what

    Examples
    --------
    >>> Unlearnt(8, Plan(learn_at=1000)).in_words
    'nothing learnt before 1,000 rows'
    """

    name: ClassVar[str] = "vectors"
    distance_type: ClassVar[type[np.generic]] = np.float32
    is_learnt: ClassVar[bool] = False
    format_version: ClassVar[int] = 2

    def __init__(self, n_features: int, plan: Plan) -> None:
        self._n_features, self.plan = n_features, plan

    @property
    def n_features(self) -> int:
        """Features of a row."""
        return self._n_features

    @property
    def n_bits(self) -> int:
        """0: no bits are kept."""
        return 0

    @property
    def columns(self) -> tuple[Column, ...]:
        """Nothing beside the vector."""
        return ()

    @property
    def in_words(self) -> str:
        """When it learns."""
        return f"nothing learnt before {self.plan.learn_at:,} rows"

    @property
    def about(self) -> Mapping[str, Any]:
        """When it learns."""
        return {"learn_at": self.plan.learn_at}

    def settings(self) -> Mapping[str, Any]:
        """The plan."""
        return {"sketch": self.name, "sketch_settings": asdict(self.plan)}

    @classmethod
    def from_settings(cls, content: Mapping[str, Any], kind: Kind) -> Unlearnt:
        """The sketch from a file."""
        if not isinstance(kind, Flat) or content["vectors"] is None or content["n_bits"] != 0:
            raise FileError("an index that has learnt nothing is flat, with vectors and 0 bits")
        return cls(content["n_features"], Plan.from_content(content["sketch_settings"]))

    def encode(
        self,
        rows: Floats,  # noqa: ARG002
        groups: NDArray[np.integer] | None,  # noqa: ARG002
    ) -> dict[str, NDArray[Any]]:
        """Nothing."""
        return {}

    def prepare(self, queries: NDArray[Any]) -> SignQueries:
        """Queries as they are; refuses numbers that are too large."""
        check_size(queries)
        return SignQueries(queries)

    def equal(
        self,
        segment: Segment,
        positions: NDArray[np.int64],
        prepared: Prepared,
        queries: NDArray[np.intp],
    ) -> NDArray[np.bool_]:
        """Never called: vectors are compared instead."""
        raise NotImplementedError
