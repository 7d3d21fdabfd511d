"""What a search returns: the k nearest, or all within a radius, with their payload."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from densehash.errors import FileError, InputError
from densehash.index.columns import arrow
from densehash.index.fetching import payload_of
from densehash.index.ids import check_ids, no_ids, public_ids
from densehash.index.state import State
from densehash.notebook import table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Effort",
    "FoundRows",
    "Hits",
    "Ranges",
    "in_short",
    "kept_ids",
    "no_hits",
    "no_ranges",
    "padded",
    "table_of_ranges",
]

_SHOWN = 30  # rows that a notebook shows; then it completes the last query
_PRINTED = 100  # an array of up to this many numbers is printed in full


Fetch: TypeAlias = "Callable[[NDArray[Any], NDArray[np.bool_]], pa.Table]"
"""Reads the payload of rows: takes ids (m,) as users see them, and which of them are missing."""


class Effort(NamedTuple):
    """How much a search of signs looked at, for each query.

    Attributes
    ----------
    groups : int32 (q,), how many groups it visited
    entries : int32 (q,), how many distances it estimated; a row that lies in two groups may count
        twice
    vectors : int32 (q,), how many rows it compared

    Examples
    --------
    >>> Effort(np.array([3]), np.array([200]), np.array([25])).vectors
    array([25])
    """

    groups: NDArray[np.int32]
    entries: NDArray[np.int32]
    vectors: NDArray[np.int32]


class FoundRows:
    """What hits of an index and of shards share: their rows as tables and dicts, with the payload.

    A subclass is a tuple of ``ids``, ``distances`` and others, and says where the payload is.

    Examples
    --------
    >>> isinstance(Hits(np.array([[3]]), np.array([[0.5]])), FoundRows)
    True
    """

    ids: NDArray[Any]
    distances: NDArray[Any]

    @property
    def _fetch(self) -> Fetch | None:
        """The function that reads the payload of rows; None if there is no payload."""
        raise NotImplementedError

    def _of_first_queries(self, ids: NDArray[Any], distances: NDArray[Any]) -> FoundRows:
        """Hits of the first queries, with their payload."""
        raise NotImplementedError

    @property
    def _about(self) -> str:
        """What a notebook shows after the number of neighbours and queries."""
        return ""

    def _repr_html_(self) -> str:
        """What a notebook shows: the neighbours of the first queries."""
        k = max(self.ids.shape[-1], 1)
        some = self
        if self.ids.ndim == 2:
            n_shown = -(-_SHOWN // k)
            some = self._of_first_queries(self.ids[:n_shown], self.distances[:n_shown])
        found = [
            {"query": query, "rank": rank, **one}
            for query, ones in enumerate(some.to_dicts())
            for rank, one in enumerate(ones[:_SHOWN], start=1)
        ]
        of = f"of {len(self.ids):,} queries" if self.ids.ndim == 2 else "of one query"
        names = list(found[0]) if found else ["query", "rank", "id", "distance"]
        caption = f"{type(self).__name__}: {k} neighbours {of}{self._about}"
        caption += f", the first {len(found)} rows" * (len(found) < self.ids.size)
        return table(names, [list(one.values()) for one in found], caption=caption)

    @property
    def _can_read(self) -> bool:
        """Whether there is a payload, and pyarrow to read it."""
        return self._fetch is not None and find_spec("pyarrow") is not None

    @property
    def payload(self) -> pa.Table:
        """The columns that the index keeps beside the vectors of these rows."""
        if self._fetch is None:
            raise InputError(
                "these hits have no payload: build the index with payload=..., and use the hits "
                "as search() returns them"
            )
        ids = self.ids.reshape(-1)
        return self._fetch(ids, _missing(ids))

    def to_arrow(self) -> pa.Table:
        """The hits as a table, with a row for each neighbour that was found.

        Returns
        -------
        Table of query (from 0 on), rank (from 1 on), id, distance, and the columns of the payload,
        if the index has one. A column of the payload with one of these names is called
        ``payload.NAME``.

        Examples
        --------
        >>> Hits(np.array([[3, -1]]), np.array([[0.5, np.inf]])).to_arrow().to_pylist()
        [{'query': 0, 'rank': 1, 'id': 3, 'distance': 0.5}]
        """
        pa = arrow()
        ids, distances = self.ids.reshape(-1), self.distances.reshape(-1)
        there = ~_missing(ids)
        k = self.ids.shape[-1]
        numbers = np.arange(len(ids))
        table = pa.table(
            {
                "query": numbers // max(k, 1),
                "rank": numbers % max(k, 1) + 1,
                "id": pa.array(ids, pa.string() if ids.dtype == object else pa.int64()),
                "distance": distances,
            }
        )
        if self._fetch is not None:
            payload = self.payload
            for name in payload.column_names:
                clear = f"payload.{name}" if name in table.column_names else name
                table = table.append_column(clear, payload.column(name))
        return table.filter(pa.array(there))

    def to_pandas(self) -> Any:
        """The hits as a pandas data frame, with the columns of :meth:`to_arrow`.

        Examples
        --------
        >>> list(Hits(np.array([[3, -1]]), np.array([[0.5, np.inf]])).to_pandas().columns)
        ['query', 'rank', 'id', 'distance']
        """
        return self.to_arrow().to_pandas()

    def to_dicts(self) -> list[list[dict[str, Any]]]:
        """The hits as a list of dicts for each query: id, distance, and the payload.

        If pyarrow is not installed, which a payload needs, they have only ids and distances.

        Examples
        --------
        >>> Hits(np.array([[3, -1]]), np.array([[0.5, np.inf]])).to_dicts()
        [[{'id': 3, 'distance': 0.5}]]
        """
        ids = self.ids.reshape(-1, self.ids.shape[-1])
        there = ~_missing(ids)
        found: list[list[dict[str, Any]]] = [[] for _ in ids]
        rows = zip(
            np.nonzero(there)[0].tolist(),
            ids[there].tolist(),
            self.distances.reshape(ids.shape)[there].tolist(),
            strict=True,
        )
        payload = self._plain_payload(there.reshape(-1))
        for (query, name, distance), beside in zip(rows, payload, strict=True):
            found[query].append({"id": name, "distance": distance, **beside})
        return found

    def _plain_payload(self, there: NDArray[np.bool_]) -> list[dict[str, Any]]:
        if not self._can_read:
            return [{} for _ in range(int(there.sum()))]
        pa = arrow()
        table = self.payload
        if not there.all():  # pyarrow takes its time
            table = table.filter(pa.array(there))
        names = [
            f"payload.{name}" if name in ("id", "distance") else name for name in table.column_names
        ]
        try:
            found: list[dict[str, Any]] = table.rename_columns(names).to_pylist()
        except (pa.ArrowException, ValueError, OverflowError) as error:  # a year beyond 9999
            raise InputError(
                f"the payload has a value that Python cannot hold: {error}; use hits.to_arrow()"
            ) from None
        return found


class _Hits(NamedTuple):
    ids: NDArray[Any]
    distances: NDArray[Any]


class Hits(_Hits, FoundRows):
    """The neighbours of q queries, nearest first; equally near ones are ordered by id.

    If the query is one vector of shape (d,), shapes are (k,) instead of (q, k), and ``effort`` has
    numbers instead of arrays. If fewer than k rows are found, arrays are filled up as follows.

    Attributes
    ----------
    ids : int64 (q, k), filled with -1; or strings in an array of objects, filled with None
    distances : float32 (q, k), filled with infinity. With ``rerank=None``: Hamming distances, int32
        (q, k), filled with -1; with signs, estimates, float32.
    effort : :class:`Effort`, how much the search looked at; None if the index keeps codes. It is
        not part of the tuple: ``ids, distances = hits`` works.
    payload : pyarrow Table of q * k rows: the columns that the index keeps beside the vectors of
        these rows. The rows of the first query come first; it is filled with nulls. It is read when
        you use it, and shows the index as it was when it was searched. Hits that you pickle or copy
        keep their payload.

    Examples
    --------
    >>> Hits(np.array([[3, -1]]), np.array([[0.5, np.inf]])).ids.shape
    (1, 2)
    >>> from densehash.index import Index
    >>> index = Index.build(np.eye(4), n_bits=8, payload=[{"lang": c} for c in "abcd"])
    >>> index.search(np.eye(4)[2:], k=1).payload.to_pydict()
    {'lang': ['c', 'd']}
    >>> index.search(np.eye(4)[2:3], k=1).to_dicts()
    [[{'id': 2, 'distance': 0.0, 'lang': 'c'}]]
    """

    looked_at: NDArray[np.int32] | None = None  # (q, 3), the columns of an Effort
    searched: State | None = None  # the index as it was, if it has a payload
    read: pa.Table | None = None  # the payload, of hits that were pickled

    def __repr__(self) -> str:
        return in_short(self)

    def __copy__(self) -> Hits:
        hits = Hits(*self)
        hits.__dict__.update(self.__dict__)
        return hits

    def __getstate__(self) -> dict[str, Any]:
        # Pickled hits take their payload with them, but not the index.
        return {"looked_at": self.looked_at, "read": self.payload if self._can_read else None}

    @property
    def effort(self) -> Effort | None:
        """How much the search looked at."""
        return None if self.looked_at is None else Effort(*self.looked_at.T)

    @property
    def first(self) -> Hits:
        """The hits of the first query alone, of shape (k,)."""
        hits = self._of_first_queries(self.ids[0], self.distances[0])
        hits.looked_at = None if self.looked_at is None else self.looked_at[0]
        return hits

    def _of_first_queries(self, ids: NDArray[Any], distances: NDArray[Any]) -> Hits:
        """Hits of the first queries, with their payload."""
        hits = Hits(ids, distances)
        hits.searched = self.searched
        hits.read = None if self.read is None else self.read.slice(0, ids.size)
        return hits

    @property
    def _fetch(self) -> Fetch | None:
        if self.read is not None:
            return partial(_read_before, self.read)
        return None if self.searched is None else partial(_found_in, self.searched)


def _read_before(table: pa.Table, *_: object) -> pa.Table:
    return table


def _found_in(state: State, ids: NDArray[Any], missing: NDArray[np.bool_]) -> pa.Table:
    try:
        return payload_of(state, kept_ids(ids, state.id_type), missing)
    except InputError as error:  # the search found these ids, so they must be there
        raise FileError(f"the index is damaged: {error}") from None


def kept_ids(ids: NDArray[Any], id_type: str) -> NDArray[Any]:
    """Ids of hits as the index keeps them, (m,); a missing row gets any id.

    Examples
    --------
    >>> kept_ids(np.array(["a", None], object), "string")
    array([b'a', b''], dtype='|S1')
    """
    if id_type != "string":
        return ids
    return check_ids(["" if name is None else name for name in ids.tolist()])


class Ranges(NamedTuple):
    """All neighbours of q queries within a radius.

    The nearest come first; equally near ones are ordered by id.

    Attributes
    ----------
    limits : int64 (q + 1,); the neighbours of query i are at ``limits[i]:limits[i + 1]``
    ids : int64 (m,), or strings in an array of objects
    distances : float32 (m,), or int32 Hamming distances

    Examples
    --------
    >>> Ranges(np.array([0, 1]), np.array([3]), np.array([0.5])).limits
    array([0, 1])
    """

    limits: NDArray[np.int64]
    ids: NDArray[Any]
    distances: NDArray[Any]

    def __repr__(self) -> str:
        return in_short(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: the neighbours of the first queries."""
        return table_of_ranges(self)


def in_short(found: Any) -> str:
    """A named tuple as it is printed; of a long array, only the ends."""
    with np.printoptions(threshold=_PRINTED):
        parts = (f"{name}={part!r}" for name, part in zip(found._fields, found, strict=True))
        return f"{type(found).__name__}({', '.join(parts)})"


def table_of_ranges(found: Any, about: str = "") -> str:
    """What a notebook shows of ``limits``, ``ids`` and ``distances``: those of the first queries.

    ``about`` comes after the number of neighbours and queries.
    """
    queries = np.repeat(np.arange(len(found.limits) - 1), np.diff(found.limits))
    ids, distances = found.ids[:_SHOWN], found.distances[:_SHOWN]
    rows = list(zip(queries.tolist(), ids.tolist(), distances.tolist(), strict=False))
    name, n_queries = type(found).__name__, len(found.limits) - 1
    caption = f"{name}: {len(found.ids):,} neighbours of {n_queries:,} queries{about}"
    caption += f", the first {len(rows)} rows" * (len(rows) < len(found.ids))
    return table(["query", "id", "distance"], rows, caption=caption)


def padded(
    ids: NDArray[Any], distances: NDArray[Any], there: NDArray[np.bool_], k: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Ids and distances as users see them, k wide.

    Parameters
    ----------
    ids, distances : (q, m), for each query
    there : bool (q, m), which of them are rows; in each query these come first

    Examples
    --------
    >>> there = np.array([[True, False]])
    >>> padded(np.array([[3, 0]]), np.zeros((1, 2), np.int32), there, 3)
    (array([[ 3, -1, -1]]), array([[ 0, -1, -1]], dtype=int32))
    """
    n = min(k, ids.shape[1])
    there = there[:, :n]
    if n == k and ids.dtype == np.int64 and bool(there.all()):
        return ids[:, :k], distances[:, :k]
    wide_ids: NDArray[Any]
    if ids.dtype.kind == "S":
        wide_ids = np.full((len(ids), k), None, dtype=object)
        wide_ids[:, :n][there] = public_ids(ids[:, :n][there])
    else:
        wide_ids = np.full((len(ids), k), -1, np.int64)
        wide_ids[:, :n] = np.where(there, ids[:, :n], -1)
    missing = -1 if distances.dtype == np.int32 else np.inf
    wide = np.full((len(ids), k), missing, distances.dtype)
    wide[:, :n] = np.where(there, distances[:, :n], missing)
    return wide_ids, wide


def _missing(ids: NDArray[Any]) -> NDArray[np.bool_]:
    """Which ids stand for a missing row."""
    nothing: Any = None if ids.dtype == object else -1
    return np.asarray(ids == nothing)


def no_hits(state: State, n_queries: int, k: int, rerank: str | None) -> Hits:
    """The hits of a search in an empty index."""
    ids = no_ids(state.id_type).reshape(n_queries, 0)
    dtype = state.sketch.distance_type if rerank is None else np.float32
    distances = np.zeros((n_queries, 0), dtype)
    hits = Hits(*padded(ids, distances, np.zeros((n_queries, 0), np.bool_), k))
    if state.payload is not None:
        hits.searched = state
    return hits


def no_ranges(state: State, n_queries: int, rerank: str | None) -> Ranges:
    """The ranges of a search by radius in an empty index."""
    none = no_hits(state, n_queries, 1, rerank)
    return Ranges(np.zeros(n_queries + 1, np.int64), none.ids[:0, 0], none.distances[:0, 0])
