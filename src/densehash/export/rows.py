"""The exported rows of an index: ids, codes, vectors and payload, in the order of ids, in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from densehash.bits import bytes_for, unpack
from densehash.checks import VectorsLike, check_vectors
from densehash.disk import is_there, writing
from densehash.errors import FileError, InputError
from densehash.index import Index
from densehash.index.columns import arrow, schema_of
from densehash.index.encoding import for_hasher
from densehash.index.ids import no_ids, public_ids
from densehash.index.index import index_state
from densehash.index.payload import PayloadRows
from densehash.index.segment import Rowset, joined
from densehash.index.sketches import Codes
from densehash.index.state import State

if TYPE_CHECKING:
    from densehash.distributed import ShardedIndex

__all__ = ["Export", "Part", "Snapshot", "bit_strings", "check_free", "codes_of"]

AnyIndex: TypeAlias = "Index | ShardedIndex"

OWN = ("id", "code", "vector")
"""Names of the columns that do not come from the payload."""

_PART_ROWS = 16_384


class Export(NamedTuple):
    """What was written.

    Attributes
    ----------
    n_rows : how many rows
    paths : all files or folders that were written; the first is the one you named
    query : an example query for the other system
    """

    n_rows: int
    paths: tuple[Path, ...]
    query: str


class Part(NamedTuple):
    """Some rows.

    Attributes
    ----------
    start : the number of the first row
    ids : int64 (m,), or strings in an array of objects
    codes : uint8 (m, width)
    vectors : float32 (m, d); None if they are not exported
    payload : pyarrow Table of m rows; None if it is not exported
    """

    start: int
    ids: NDArray[Any]
    codes: NDArray[np.uint8]
    vectors: NDArray[np.float32] | None
    payload: Any


class Snapshot:
    """The rows of an index at one moment. The files that it reads are checked by their checksums.

    Parameters
    ----------
    index : an index of codes; a sharded index is read on this machine
    vectors : whether to export vectors
    payload : whether to export the payload, if there is one

    Examples
    --------
    >>> index = Index.build(np.eye(4), ids=[7, 5, 3, 9], sketch="codes", n_bits=12, random_state=0)
    >>> [(part.ids.tolist(), part.codes.shape) for part in Snapshot(index).parts()]
    [([3, 5, 7, 9], (4, 2))]
    """

    def __init__(self, index: AnyIndex, *, vectors: bool = False, payload: bool = True) -> None:
        state = _state_of(index)
        if not isinstance(state.sketch, Codes):
            raise InputError(
                f"this index keeps {state.sketch.name}, and only codes can be exported: build it "
                "with sketch='codes' (--sketch codes), or with a hasher"
            )
        if vectors and state.vector_type is None:
            raise InputError(
                "this index keeps no vectors: export codes alone, or build it with "
                "keep_vectors=True"
            )
        self.sketch, self.hasher, self.metric = state.sketch, state.sketch.hasher, state.metric
        self.n_bits, self.n_features = state.sketch.n_bits, state.sketch.n_features
        self.width = bytes_for(self.n_bits)
        self.kind, self.probes = state.kind, state.settings.probes
        self.has_strings = state.id_type == "string"
        self.has_vectors = vectors
        self.columns = state.payload if payload and state.payload is not None else ()
        # What is not exported is not read.
        left_out: dict[str, Any] = {} if vectors else {"vectors": None}
        left_out |= {} if self.columns else {"payload": None}
        parts = [state.rows_of(replace(s, **left_out)) for s in state.segments if s.n_live]
        none = Rowset(
            no_ids(state.id_type),
            {"codes": np.empty((0, self.width), np.uint8)},
            np.empty((0, self.n_features), np.float32) if vectors else None,
            None,
            PayloadRows([], self.columns) if self.columns else None,
        )
        self._rows = joined(parts) if parts else none
        self._order = np.argsort(self._rows.ids, kind="stable")

    def __len__(self) -> int:
        return len(self._order)

    @property
    def ids(self) -> NDArray[Any]:
        """The ids of all rows, ascending: int64 (n,), or strings in an array of objects."""
        return public_ids(self._rows.ids[self._order])

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """The group of each row, int64 (n,); None if the kind has no groups."""
        labels = self._rows.labels
        return None if labels is None else labels[self._order].astype(np.int64)

    @property
    def names(self) -> list[str]:
        """Names of the payload's columns; one that is named as a column in OWN gets a prefix."""
        taken = {name.lower() for name, _ in self.columns}
        found = []
        for name, _ in self.columns:
            called = name
            while called.lower() in OWN or (called != name and called.lower() in taken):
                called = f"payload_{called}"
            found.append(called)
        return found

    def check_names(self, system: str) -> list[str]:
        """The same, for a system that ignores case: refuses names that differ only in case."""
        seen: dict[str, str] = {}
        for name in self.names:
            other = seen.setdefault(name.lower(), name)
            if other != name:
                raise InputError(
                    f"{system} cannot tell the columns {other!r} and {name!r} of the payload "
                    "apart: export to parquet or pgvector, which can"
                )
        return self.names

    def parts(self) -> Iterator[Part]:
        """All rows, in parts."""
        codes, vectors, payload = self._rows.columns["codes"], self._rows.vectors, self._payload
        for start in range(0, len(self), _PART_ROWS):
            some = self._order[start : start + _PART_ROWS]
            yield Part(
                start,
                public_ids(self._rows.ids[some]),
                np.ascontiguousarray(codes[some]),
                None if vectors is None else np.ascontiguousarray(vectors[some], np.float32),
                None if payload is None else payload.take(some).table(),
            )

    @property
    def _payload(self) -> PayloadRows | None:
        return self._rows.payload if self.columns else None

    def schema(self) -> Any:
        """The schema of :meth:`tables`: id, code, vector if it is exported, and the payload."""
        pa = arrow()
        fields = [
            pa.field("id", pa.string() if self.has_strings else pa.int64(), nullable=False),
            pa.field("code", pa.binary(self.width), nullable=False),
        ]
        if self.has_vectors:
            number = pa.field("item", pa.float32())
            fields.append(pa.field("vector", pa.list_(number, self.n_features), nullable=False))
        payload = schema_of(self.columns) if self.columns else ()
        fields += [kept.with_name(name) for kept, name in zip(payload, self.names, strict=True)]
        about = {
            "densehash.bits": str(self.n_bits),
            "densehash.bit_order": "little",
            "densehash.hasher": type(self.hasher).__name__,
            "densehash.metric": self.metric,
        }
        return pa.schema(fields, about)

    def tables(self) -> Iterator[Any]:
        """All rows as pyarrow Tables, in parts."""
        pa = arrow()
        schema = self.schema()
        for part in self.parts():
            columns = [
                pa.array(part.ids, schema.field("id").type),
                _binary(pa, part.codes),
            ]
            if part.vectors is not None:
                columns.append(
                    pa.FixedSizeListArray.from_arrays(
                        pa.array(part.vectors.reshape(-1)), type=schema.field("vector").type
                    )
                )
            columns += [] if part.payload is None else part.payload.columns
            yield pa.Table.from_arrays(columns, schema=schema)


def _state_of(index: AnyIndex) -> State:
    if isinstance(index, Index):
        return index_state(index)
    from densehash.distributed.sharded import whole_of  # noqa: PLC0415  an extra

    return whole_of(index)


def _binary(pa: Any, codes: NDArray[np.uint8]) -> Any:
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(codes.shape[1]), len(codes), [None, pa.py_buffer(codes)]
    )


def codes_of(index: AnyIndex, Q: VectorsLike) -> NDArray[np.uint8]:
    """Codes of queries, to compare with exported codes.

    They are made as the index makes its codes: with cosine, queries are first scaled to length one,
    with ip to the length to which the index scales its rows.

    Parameters
    ----------
    index : an index of codes
    Q : real array of shape (q, d); finite

    Returns
    -------
    uint8 array of shape (q, ceil(n_bits / 8)), little bit order

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((50, 4))
    >>> index = Index.build(X, sketch="codes", n_bits=13, random_state=0)
    >>> codes_of(index, X[:3]).shape
    (3, 2)
    """
    return index.hasher.transform(for_hasher(check_vectors(Q, "Q"), _state_of(index)))


def bit_strings(codes: NDArray[np.uint8], n_bits: int) -> list[str]:
    """Codes as strings of zeros and ones, for the type ``BIT`` of DuckDB and PostgreSQL.

    Parameters
    ----------
    codes : uint8 array of shape (n, ceil(n_bits / 8)), little bit order
    n_bits : from 1 to 4096

    Returns
    -------
    n strings; bit i of a code is character i of its string

    Examples
    --------
    >>> bit_strings(np.array([[5, 1]], dtype=np.uint8), 9)
    ['101000001']
    """
    signs = unpack(codes, n_bits).view(np.uint8) + np.uint8(ord("0"))
    return [row.tobytes().decode("ascii") for row in signs]


def check_free(paths: Sequence[Path], *, force: bool) -> None:
    """Refuse to replace files, before any work is done.

    Parameters
    ----------
    paths : all files that will be written
    force : whether to replace files that exist

    Examples
    --------
    >>> check_free([Path("no-such-file")], force=False)
    """
    for path in paths:
        folder = path.absolute().parent
        if not folder.is_dir():
            raise FileError(f"{folder} is no folder, so {path} cannot be made in it")
        with writing(path):
            if not is_there(path):
                continue
        if path.is_dir():
            raise FileError(f"{path} is a directory, expected a file or nothing")
        if not force:
            raise FileError(f"{path} exists already: force=True (--force) replaces it")
