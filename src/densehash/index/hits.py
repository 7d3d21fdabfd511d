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

_SHOWN = 30  # rows that a notebook shows, and a few more of the last query
_PRINTED = 100  # numbers of an array that are printed, all of them


Fetch: TypeAlias = "Callable[[NDArray[Any], NDArray[np.bool_]], pa.Table]"
"""Of ids (m,) as users see them, and where there is none, the payload of these rows."""


class Effort(NamedTuple):
    """What a search of signs looked at, for each query.

    Attributes
    ----------
    groups : int32 (q,), groups that were visited
    entries : int32 (q,), entries in them whose distance was estimated; a row may have two
    vectors : int32 (q,), rows that were compared

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

    A class of it is a tuple of ``ids``, ``distances`` and others, and says where the payload is.

    Examples
    --------
    >>> isinstance(Hits(np.array([[3]]), np.array([[0.5]])), FoundRows)
    True
    """

    ids: NDArray[Any]
    distances: NDArray[Any]

    @property
    def _fetch(self) -> Fetch | None:
        """What reads the payload of rows; None where there is none."""
        raise NotImplementedError

    def _of_first_queries(self, ids: NDArray[Any], distances: NDArray[Any]) -> FoundRows:
        """Hits of the first queries, with their payload."""
        raise NotImplementedError

    @property
    def _about(self) -> str:
        """What a notebook says beside the number of neighbours and queries."""
        return ""

    def _repr_html_(self) -> str:
        """What a notebook shows: those of the first queries."""
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
        """What the index keeps beside the vectors of these rows."""
        if self._fetch is None:
            raise InputError(
                "these hits have no payload: build the index with payload=..., and take the hits "
                "as search() returns them"
            )
        ids = self.ids.reshape(-1)
        return self._fetch(ids, _missing(ids))

    def to_arrow(self) -> pa.Table:
        """What was found, a row for each neighbour that is there.

        Returns
        -------
        Table of query (from 0 on), rank (from 1 on), id, distance, and the columns of the payload,
        where the index has one; a column of it that has one of these names is called
        ``payload.NAME``

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
        """The same as a data frame of pandas.

        Examples
        --------
        >>> list(Hits(np.array([[3, -1]]), np.array([[0.5, np.inf]])).to_pandas().columns)
        ['query', 'rank', 'id', 'distance']
        """
        return self.to_arrow().to_pandas()

    def to_dicts(self) -> list[list[dict[str, Any]]]:
        """What was found, for each query a list of dicts: id, distance, and the payload.

        Without pyarrow, which a payload needs, these are ids and distances alone.

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
        table = self.payload.filter(pa.array(there))
        names = [
            f"payload.{name}" if name in ("id", "distance") else name for name in table.column_names
        ]
        try:
            found: list[dict[str, Any]] = table.rename_columns(names).to_pylist()
        except (pa.ArrowException, ValueError, OverflowError) as error:  # a year beyond 9999
            raise InputError(
                f"the payload has what Python cannot hold: {error}; take hits.to_arrow()"
            ) from None
        return found


class _Hits(NamedTuple):
    ids: NDArray[Any]
    distances: NDArray[Any]


class Hits(_Hits, FoundRows):
    """The neighbours of q queries, nearest first; equally near ones by id.

    Where one vector of shape (d,) was asked for, shapes are (k,) in place of (q, k), and ``effort``
    has a number in place of each array.

    Attributes
    ----------
    ids : int64 (q, k), -1 where there are fewer; or strings in an array of objects, None where
        there are fewer
    distances : float32 (q, k), infinite where there are fewer; or, where nothing was re-ranked,
        Hamming distances as int32 (q, k), -1 where there are fewer; of signs, estimates as
        float32
    effort : :class:`Effort`, what was looked at; None where rows are kept as codes. It is not one
        of the two that ``ids, distances = hits`` unpacks
    payload : pyarrow Table (q * k rows), what the index keeps beside the vectors of these rows,
        those of the first query first; null where there are fewer. It is read when it is asked
        for, as it was when the index was searched. Hits that are pickled or copied keep it

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
    searched: State | None = None  # the index as it was, where it has a payload
    read: pa.Table | None = None  # the payload, of hits that have travelled

    def __repr__(self) -> str:
        return in_short(self)

    def __copy__(self) -> Hits:
        hits = Hits(*self)
        hits.__dict__.update(self.__dict__)
        return hits

    def __getstate__(self) -> dict[str, Any]:
        # The payload travels with what was found, the index does not.
        return {"looked_at": self.looked_at, "read": self.payload if self._can_read else None}

    @property
    def effort(self) -> Effort | None:
        """What was looked at."""
        return None if self.looked_at is None else Effort(*self.looked_at.T)

    @property
    def first(self) -> Hits:
        """Those of the first query alone, without its axis."""
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
    except InputError as error:  # they were found in there
        raise FileError(f"the index is damaged: {error}") from None


def kept_ids(ids: NDArray[Any], id_type: str) -> NDArray[Any]:
    """Ids of hits as they are kept, (m,); what stands for no row becomes any id.

    Examples
    --------
    >>> kept_ids(np.array(["a", None], object), "string")
    array([b'a', b''], dtype='|S1')
    """
    if id_type != "string":
        return ids
    return check_ids(["" if name is None else name for name in ids.tolist()])


class Ranges(NamedTuple):
    """All neighbours of q queries within a radius, nearest first; equally near ones by id.

    Attributes
    ----------
    limits : int64 (q + 1,); query i's are at ``limits[i]:limits[i + 1]``
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
        """What a notebook shows: those of the first queries."""
        return table_of_ranges(self)


def in_short(found: Any) -> str:
    """A named tuple as it is printed; of long arrays the ends alone."""
    with np.printoptions(threshold=_PRINTED):
        parts = (f"{name}={part!r}" for name, part in zip(found._fields, found, strict=True))
        return f"{type(found).__name__}({', '.join(parts)})"


def table_of_ranges(found: Any, about: str = "") -> str:
    """What a notebook shows of ``limits``, ``ids`` and ``distances``, those of the first queries.

    ``about`` is said beside the number of neighbours and queries.
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
    ids, distances, there : of each query, (q, m); those that are there come first

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
    """Where there is no row."""
    nothing: Any = None if ids.dtype == object else -1
    return np.asarray(ids == nothing)


def no_hits(state: State, n_queries: int, k: int, rerank: str | None) -> Hits:
    """What an empty index answers."""
    ids = no_ids(state.id_type).reshape(n_queries, 0)
    dtype = state.sketch.distance_type if rerank is None else np.float32
    distances = np.zeros((n_queries, 0), dtype)
    hits = Hits(*padded(ids, distances, np.zeros((n_queries, 0), np.bool_), k))
    if state.payload is not None:
        hits.searched = state
    return hits


def no_ranges(state: State, n_queries: int, rerank: str | None) -> Ranges:
    """What an empty index answers where all within a radius is asked for."""
    none = no_hits(state, n_queries, 1, rerank)
    return Ranges(np.zeros(n_queries + 1, np.int64), none.ids[:0, 0], none.distances[:0, 0])
