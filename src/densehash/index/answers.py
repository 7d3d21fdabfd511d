"""What a search returns: the k nearest, or all within a radius."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from densehash.checks import check_threads
from densehash.errors import FileError, InputError
from densehash.index.columns import arrow
from densehash.index.fetching import payload_of
from densehash.index.filters import AnyFilter, allowed_rows
from densehash.index.ids import check_ids, no_ids, public_ids
from densehash.index.ordering import Found, order_of
from densehash.index.question import Question, Request
from densehash.index.requests import reach_of
from densehash.index.scaling import scaled
from densehash.index.searching import named, nearest
from densehash.index.segment import Segment
from densehash.index.state import State
from densehash.notebook import table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Effort",
    "FoundRows",
    "Hits",
    "Ranges",
    "equal_rows",
    "hits_of",
    "kept_ids",
    "neighbours",
    "neighbours_within",
    "no_hits",
    "padded",
    "plain_hits",
    "ranges_of",
]

_BATCH = 2**24  # numbers that all queries of a batch have together
_MANY = 2**12  # rows of each query at a time, where every row is compared
_FIRST = 100  # rows that are looked for at first, where nothing else is said
_SHOWN = 30  # rows that a notebook shows, and a few more of the last query
_PRINTED = 100  # numbers of an array that are printed, all of them
_WIDER = 4  # times as many candidates, where all of them lay within the radius


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
        return _in_short(self)

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
        caption = f"Hits: {k} neighbours {of}"
        caption += f", the first {len(found)} rows" * (len(found) < self.ids.size)
        return table(names, [list(one.values()) for one in found], caption=caption)

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
        return _in_short(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: those of the first queries."""
        queries = np.repeat(np.arange(len(self.limits) - 1), np.diff(self.limits))
        ids, distances = self.ids[:_SHOWN], self.distances[:_SHOWN]
        rows = list(zip(queries.tolist(), ids.tolist(), distances.tolist(), strict=False))
        caption = f"Ranges: {len(self.ids):,} neighbours of {len(self.limits) - 1:,} queries"
        caption += f", the first {len(rows)} rows" * (len(rows) < len(self.ids))
        return table(["query", "id", "distance"], rows, caption=caption)


def _in_short(found: Hits | Ranges) -> str:
    with np.printoptions(threshold=_PRINTED):
        parts = (f"{name}={part!r}" for name, part in zip(found._fields, found, strict=True))
        return f"{type(found).__name__}({', '.join(parts)})"


def plain_hits(
    state: State,
    Q: NDArray[Any],
    k: int,
    chosen: AnyFilter | None,
    recall: float | None,
    n_threads: int | None,
) -> Hits | None:
    """Hits of a search that says nothing else, in one call; None where it is not that plain.

    ``chosen`` : a filter; one that is a function is not that plain

    Examples
    --------
    >>> from densehash.index import Index
    >>> X = np.random.default_rng(0).standard_normal((400, 8), dtype=np.float32)
    >>> plain_hits(Index.build(X, random_state=0)._state, X[:1], 1, None, None, None).ids
    array([[0]])
    """
    if not state.sketch.estimates or callable(chosen):
        return None
    reach, allowed = reach_of(state, recall), allowed_rows(state, chosen)
    found = state.sketch.plainly(state.segments, Q, k, reach, allowed, check_threads(n_threads))
    if found is None:
        return None
    ids, distances, efforts = found
    hits = Hits(ids, distances)
    hits.looked_at = efforts
    if state.payload is not None:
        hits.searched = state
    return hits


def hits_of(
    state: State,
    asked: Question,
    request: Request,
    *,
    own: NDArray[Any] | bool = False,
    radius: float | None = None,
) -> Hits:
    """The k nearest rows of all queries; the parameters are those of :func:`neighbours`.

    ``radius`` : nothing farther away is returned

    Examples
    --------
    >>> from densehash.index import Index
    >>> from densehash.index.requests import question_of
    >>> index = Index.build(np.arange(5.0)[:, np.newaxis], n_bits=8, random_state=0)
    >>> state = index._state
    >>> asked, request = question_of(state, [[2.0]]), Request(3, 5, "exact", [None])
    >>> hits_of(state, asked, request).ids
    array([[2, 1, 3]])
    """
    parts = []
    efforts: list[NDArray[np.int32]] = []
    watched = replace(request, watch=efforts.append)
    for ids, distances, there in neighbours(state, asked, watched, own=own):
        near = there if radius is None else there & (distances <= radius)
        parts.append(padded(ids, distances, near, request.k))
    if len(parts) == 1:
        hits = Hits(*parts[0])
    else:
        hits = Hits(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    if efforts:
        hits.looked_at = efforts[0] if len(efforts) == 1 else np.concatenate(efforts)
    if state.payload is not None:
        hits.searched = state
    return hits


def ranges_of(
    state: State,
    asked: Question,
    request: Request,
    *,
    own: NDArray[Any] | bool = False,
    radius: float,
) -> Ranges:
    """All rows of all queries within a radius, as :func:`neighbours_within` finds them.

    Examples
    --------
    >>> from densehash.index import Index
    >>> from densehash.index.requests import question_of
    >>> index = Index.build(np.arange(5.0)[:, np.newaxis], n_bits=8, random_state=0)
    >>> state = index._state
    >>> asked, request = question_of(state, [[2.0]]), Request(3, 5, "exact", [None])
    >>> ranges_of(state, asked, request, radius=1.0).ids
    array([2, 1, 3])
    """
    queries, ids, distances = neighbours_within(state, asked, request, own=own, radius=radius)
    order = order_of(distances, ids, first=(queries,))
    counts = np.bincount(queries, minlength=len(asked))
    limits = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Ranges(limits, public_ids(ids[order]), distances[order])


def neighbours(
    state: State,
    asked: Question,
    request: Request,
    *,
    own: NDArray[Any] | bool = False,
) -> Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]]:
    """The k nearest rows, for some queries after the other.

    Parameters
    ----------
    state : where to look; at least one segment
    asked : q queries
    request : what is asked for
    own : ids of the queries, (q,), never their own neighbours; True leaves out the first row that
        equals the query; False leaves out nothing

    Yields
    ------
    ids (b, m) as they are kept, distances (b, m), and whether there is one, (b, m); m is k or less

    Examples
    --------
    >>> from densehash.index import Index
    >>> from densehash.index.requests import question_of
    >>> index = Index.build(np.arange(5.0)[:, np.newaxis], n_bits=8, random_state=0)
    >>> state = index._state
    >>> asked, request = question_of(state, [[2.0]]), Request(3, 5, "exact", [None])
    >>> for ids, distances, there in neighbours(state, asked, request):
    ...     distances
    array([[0., 1., 1.]], dtype=float32)
    """
    wide = request
    if own is not False:  # one more, for the query itself
        more = request.n_candidates + (request.n_candidates > 0)
        wide = replace(request, k=request.k + 1, n_candidates=more)
    for at, part in _batches(state, asked, wide):
        found = nearest(state, part, wide)
        ids = named(state.segments, found)
        if isinstance(own, bool):
            gone = _equal(state, part, found) if own else None
        else:
            gone = ids == own[at, np.newaxis]
        if gone is not None:
            ids, found = _without(ids, found, gone & found.there, request.k)
        yield ids, found.distances, found.there


def neighbours_within(
    state: State,
    asked: Question,
    request: Request,
    *,
    own: NDArray[Any] | bool = False,
    radius: float,
) -> tuple[NDArray[np.intp], NDArray[Any], NDArray[Any]]:
    """All rows within a radius, in any order.

    Hamming distances are searched exactly. Others are those of the candidates, of which there are
    more for queries that all of them are near; estimates, too.

    Parameters
    ----------
    state, asked, own : as in :func:`neighbours`
    request : what is asked for; ``k`` is not looked at
    radius : at least 0

    Returns
    -------
    numbers of queries (m,), ids (m,) as they are kept, and distances (m,)

    Examples
    --------
    >>> from densehash.index import Index
    >>> from densehash.index.requests import question_of
    >>> index = Index.build(np.arange(5.0)[:, np.newaxis], n_bits=8, random_state=0)
    >>> state = index._state
    >>> asked, request = question_of(state, [[2.0]]), Request(3, 5, "exact", [None])
    >>> neighbours_within(state, asked, request, radius=0.5)
    (array([0]), array([2]), array([0.], dtype=float32))
    """
    counted = request.rerank is None and state.sketch.counts
    search = _hamming_range if counted else _reranked_range
    return search(state, asked, request, radius=radius, own=own)


def _batches(state: State, asked: Question, request: Request) -> Iterator[tuple[slice, Question]]:
    """Some queries after the other; many at a time, since those alike then share the cache."""
    n = max(request.n_candidates, request.k, _MANY if request.compare_all else 0)
    numbers = n * len(state.segments) + state.kind.numbers_a_query
    n_batches = -(-len(asked) // max(_BATCH // numbers, 64))
    step = -(-len(asked) // max(n_batches, 1))  # all of one size
    for start in range(0, len(asked), step):
        at = slice(start, start + step)
        yield at, asked if step >= len(asked) else asked.some(at)


def _hamming_range(
    state: State,
    asked: Question,
    request: Request,
    *,
    radius: float,
    own: NDArray[Any] | bool,
) -> tuple[NDArray[np.intp], NDArray[Any], NDArray[Any]]:
    parts = []
    for segment, allowed in zip(state.segments, request.allowed, strict=True):
        limits, distances, positions = state.sketch.within(
            segment,
            asked.prepared,
            state.kind.visits_for_all(segment),
            radius,
            n_threads=asked.n_threads,
        )
        queries = np.repeat(np.arange(len(asked)), np.diff(limits))
        ranks = segment.rank_at(positions)
        ids = segment.ids[ranks]
        if not isinstance(own, bool):
            equal = ids == own[queries]
        elif own:
            equal = equal_rows(state, segment, asked, positions, queries)
        else:
            equal = np.zeros(len(ids), np.bool_)
        part = queries, ids, distances, equal
        parts.append(part if allowed is None else tuple(one[allowed[ranks]] for one in part))
    queries, ids, distances, gone = (np.concatenate(column) for column in zip(*parts, strict=True))
    if isinstance(own, bool) and gone.any():  # the first one alone
        order = order_of(distances, ids, first=(queries, ~gone))
        first = np.r_[True, queries[order][1:] != queries[order][:-1]]
        gone[order[~first]] = False
    return queries[~gone], ids[~gone], distances[~gone]


def _reranked_range(
    state: State,
    asked: Question,
    request: Request,
    *,
    radius: float,
    own: NDArray[Any] | bool,
) -> tuple[NDArray[np.intp], NDArray[Any], NDArray[Any]]:
    parts = []
    most = sum(segment.n_rows for segment in state.segments)
    waiting, n = np.arange(len(asked)), min(request.n_candidates or _FIRST, most)
    while len(waiting):
        wide = replace(request, k=n, n_candidates=n if request.n_candidates else 0)
        full = []
        for at, part in _batches(state, asked.some(waiting), wide):
            found = nearest(state, part, wide)
            ids = named(state.segments, found)
            near = found.there & (found.distances <= radius)
            all_near = near.sum(axis=1) == n
            if not isinstance(own, bool):
                near &= ids != own[waiting[at], np.newaxis]
            elif own:
                near &= ~_first_only(_equal(state, part, found) & found.there)
            if n < most:
                full.append(waiting[at][all_near])
                near &= ~all_near[:, np.newaxis]
            rows, columns = np.nonzero(near)
            parts.append((waiting[at][rows], ids[rows, columns], found.distances[rows, columns]))
        waiting = np.concatenate(full) if full else np.empty(0, np.intp)
        n = min(_WIDER * n, most)
    queries, ids, distances = (np.concatenate(column) for column in zip(*parts, strict=True))
    return queries, ids, distances


def _equal(state: State, asked: Question, found: Found) -> NDArray[np.bool_]:
    """Whether rows equal their query: their vectors, or their sketches where none are kept."""
    same = np.zeros(found.positions.shape, np.bool_)
    for number, segment in enumerate(state.segments):
        here = found.there & (found.segments == number)
        queries, columns = np.nonzero(here)
        positions = found.positions[here]
        same[queries, columns] = equal_rows(state, segment, asked, positions, queries)
    return same


def equal_rows(
    state: State,
    segment: Segment,
    asked: Question,
    positions: NDArray[np.int64],
    queries: NDArray[np.intp],
) -> NDArray[np.bool_]:
    """Whether the rows at some positions equal the queries of some numbers, (m,) each.

    Examples
    --------
    >>> from densehash.index import Index
    >>> from densehash.index.requests import question_of
    >>> state = Index.build(np.arange(5.0)[:, np.newaxis], n_bits=8, random_state=0)._state
    >>> asked = question_of(state, [[2.0]])
    >>> equal_rows(state, state.segments[0], asked, np.array([2, 3]), np.array([0, 0]))
    array([ True, False])
    """
    if segment.vectors is None or not asked.has_vectors:
        return state.sketch.equal(segment, positions, asked.prepared, queries)
    as_kept = asked.vectors
    if state.sketch.scaled:
        as_kept, scales = scaled(asked.vectors)
        alike: NDArray[np.bool_] = (segment.vectors[positions] == as_kept[queries]).all(axis=1)
        alike &= (segment.columns["scales"][positions] == scales[queries])[:, 0]
        return alike
    if segment.vectors.dtype.kind == "f":
        with np.errstate(over="ignore"):
            as_kept = as_kept.astype(segment.vectors.dtype)
    found: NDArray[np.bool_] = (segment.vectors[positions] == as_kept[queries]).all(axis=1)
    return found


def _first_only(marks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The first mark of each row alone."""
    first: NDArray[np.bool_] = marks & (np.cumsum(marks, axis=1) == 1)
    return first


def _without(
    ids: NDArray[Any], found: Found, gone: NDArray[np.bool_], k: int
) -> tuple[NDArray[Any], Found]:
    """Everything but the first row marked as gone, or, where none is, but what comes after k."""
    if ids.shape[1] <= k:  # nothing comes after k: one more that is not there
        ids, *parts = (_wider(part) for part in (ids, *found))
        found, gone = Found(*parts), _wider(gone, fill=False)
    gone = _first_only(gone)
    gone[~gone.any(axis=1), -1] = True
    shape = len(ids), ids.shape[1] - 1
    return ids[~gone].reshape(shape), Found(*(part[~gone].reshape(shape) for part in found))


def _wider(part: NDArray[Any], fill: Any = -1) -> NDArray[Any]:
    """With one more column; where ids are strings, it holds anything."""
    more = np.zeros((len(part), 1), part.dtype)
    if part.dtype.kind != "S":
        more[:] = fill
    return np.concatenate([part, more], axis=1)


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
    """What an empty index answers.

    Examples
    --------
    >>> from densehash.index import Index
    >>> no_hits(Index.build(np.eye(8), hasher="itq", n_bits=8)._state, 1, 2, None)
    Hits(ids=array([[-1, -1]]), distances=array([[-1, -1]], dtype=int32))
    """
    ids = no_ids(state.id_type).reshape(n_queries, 0)
    dtype = state.sketch.distance_type if rerank is None else np.float32
    distances = np.zeros((n_queries, 0), dtype)
    hits = Hits(*padded(ids, distances, np.zeros((n_queries, 0), np.bool_), k))
    if state.payload is not None:
        hits.searched = state
    return hits
