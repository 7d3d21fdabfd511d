"""All that an index is at one moment, and its form as plain content of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from densehash.bits import MAX_BITS
from densehash.checks import check_choice, check_integer, check_positive, check_recall
from densehash.errors import DensehashError, FileError, InputError
from densehash.index import placing
from densehash.index.columns import Columns, check_columns
from densehash.index.gathering import Gathered
from densehash.index.ids import IdType
from densehash.index.kinds import Kind, kind_from
from densehash.index.payload import Payload
from densehash.index.placing import Put, in_memory
from densehash.index.queries import Reach
from densehash.index.segment import MOST_ROWS, VECTOR_TYPES, Rowset, Segment, joined
from densehash.index.sketches import Bits, Codes, Sketch, Unlearnt, sketch_from
from densehash.index.sketches.bits import HAMMING
from densehash.index.stored import check_stored
from densehash.index.visits import KeptMatches, Matches
from densehash.locks import cached_property
from densehash.truth import METRICS

if TYPE_CHECKING:
    from densehash.hashers import Hasher

__all__ = [
    "CHECKED",
    "Settings",
    "State",
    "content_of",
    "state_at",
    "state_from",
    "with_segments_of",
]

CHECKED = ("hasher", "kind_settings", "sketch_settings")
"""Parts of the content whose checksums are looked at whenever an index is opened."""

_OF_SKETCHES = ("hasher", "sketch", "sketch_settings")  # parts of the content
_PAYLOAD_VERSION = 3


@dataclass(frozen=True)
class Settings:
    """The default settings of searches.

    Attributes
    ----------
    candidates : how many candidates are re-ranked; None: as many as suit the number of rows
    probes : how many groups, or buckets of each table, are visited; None: the default of the kind
    reach : with signs, how far a search looks; None: at everything
    reaches : with signs, how far a search looks for some recalls, in rising order

    Examples
    --------
    >>> Settings(candidates=100).recall is None
    True
    """

    candidates: int | None = None
    probes: int | None = None
    reach: Reach | None = None
    reaches: tuple[Reach, ...] = ()

    @property
    def recall(self) -> float | None:
        """The share of the nearest rows that a search finds; None if it was not measured."""
        return None if self.reach is None else self.reach.expected


@dataclass(frozen=True, eq=False)
class State:
    """An index at one moment; it never changes.

    Attributes
    ----------
    sketch : what is kept of a row, and how rows are ranked by it
    kind : where rows lie, and which of them a query visits
    metric : "l2", "cosine" or "ip"
    id_type : "int64" or "string"
    vector_type : one of VECTOR_TYPES, or None if vectors are not kept
    segments : the rows; no segment is empty
    next_id : the first number that was never an id
    reason : why this kind was chosen
    settings : the default settings of searches
    payload : names and types of the columns that are kept beside the vectors; None if there are
        none
    """

    sketch: Sketch
    kind: Kind
    metric: str
    id_type: IdType
    vector_type: str | None
    segments: tuple[Segment, ...] = ()
    next_id: int = 0
    reason: str = ""
    settings: Settings = field(default_factory=Settings)
    payload: Columns | None = None

    @property
    def format_version(self) -> int:
        """The first version of the format on disk that can hold this index."""
        return max(self.sketch.format_version, 1 if self.payload is None else _PAYLOAD_VERSION)

    @property
    def hasher(self) -> Hasher:
        """The hasher that makes codes; an error if the index does not keep codes."""
        if isinstance(self.sketch, Codes):
            return self.sketch.hasher
        if isinstance(self.sketch, Unlearnt):
            raise InputError(
                f"this index has no hasher yet: it learns at {self.sketch.plan.learn_at:,} rows, "
                f"and has {self.n_live:,}"
            )
        raise InputError(
            f"this index keeps {self.sketch.name}, not codes of a hasher: build it with "
            "sketch='codes'"
        )

    @property
    def is_open(self) -> bool:
        """Whether the next rows decide which types ids, vectors and payload have."""
        return not self.sketch.is_learnt and not self.segments

    @property
    def is_exact(self) -> bool:
        """Whether vectors are kept, and not with scales, which would round them."""
        return self.vector_type is not None and not self.sketch.scaled

    def vectors_at(self, segment: Segment, positions: NDArray[np.integer]) -> NDArray[Any]:
        """Kept vectors (m, d); float32 if they are kept with scales."""
        vectors: NDArray[Any] = segment.kept[positions]
        return vectors * segment.columns["scales"][positions] if self.sketch.scaled else vectors

    @cached_property
    def live(self) -> Matches:
        """Which rows of each segment were not removed."""
        return Matches(segment.live for segment in self.segments)

    @cached_property
    def matches(self) -> KeptMatches:
        """What the last filters have found."""
        return KeptMatches()

    @cached_property
    def n_live(self) -> int:
        """How many rows, without those that were removed."""
        return sum(segment.n_live for segment in self.segments)

    @property
    def n_removed(self) -> int:
        """How many rows were removed, but still take room."""
        return sum(len(segment.removed) for segment in self.segments)

    @property
    def about(self) -> dict[str, Any]:
        """What all rows have in common, as plain values."""
        return {
            "features": self.sketch.n_features,
            "kind": self.kind.name,
            "sketch": self.sketch.name,
            "reason": self.reason,
            **self.sketch.about,
            "metric": self.metric,
            "ids": None if self.is_open else self.id_type,
            "vectors": None if self.is_open else self.vector_type,
            "payload": None if self.payload is None or self.is_open else dict(self.payload),
        }

    def in_words(self, n_rows: int) -> str:
        """The index in one line, with this number of rows."""
        vectors = f"{self.vector_type} vectors" if self.vector_type else "no vectors"
        vectors = f"scaled {vectors}" if self.sketch.scaled else vectors
        payload = f", payload of {', '.join(name for name, _ in self.payload or ())}"
        if self.is_open:
            return (
                f"empty, {self.sketch.in_words}, {self.sketch.n_features} features, {self.metric}"
            )
        return (
            f"{self.kind.name}, {n_rows:,} rows, {self.sketch.in_words}, {vectors}, {self.metric}"
            + payload * (self.payload is not None)
        )

    def bytes_a_row(self, id_bytes: int) -> int:
        """Bytes of an id, of what the sketch keeps, and of a kept vector, without a payload."""
        kept = 0 if self.vector_type is None else np.dtype(self.vector_type).itemsize
        return id_bytes + self.sketch.bytes_a_row + self.sketch.n_features * kept

    def segment_of(self, rows: Rowset, put: Put = in_memory) -> Segment:
        """A segment of rows, which may be in any order; their ids differ."""
        ids, labels, payload = rows.ids, rows.labels, rows.payload
        order: NDArray[np.integer] | None = None
        if not bool((ids[:-1] < ids[1:]).all()):
            order = np.argsort(ids, kind="stable").astype(np.uint32)  # MOST_ROWS fit
            ids, labels = ids[order], labels if labels is None else labels[order]
            payload = None if payload is None else payload.take(order)
        ranks = None if self.sketch.places_rows else self.kind.arrange(labels)
        if ranks is not None:  # large arrays are reordered once, not by id and again by the kind
            order = ranks if order is None else order[ranks]
        columns, vectors = rows.columns, rows.vectors
        if order is not None:
            columns = {name: Gathered([column], order) for name, column in columns.items()}
            vectors = None if vectors is None else Gathered([vectors], order)
        placed = self.sketch.placed(columns, put)
        extra: dict[str, NDArray[Any]] = {}
        if not self.sketch.places_rows:
            extra = self.kind.own_arrays(placed, labels, ranks)
        return Segment(
            put(ids, "ids"),
            placed,
            None if vectors is None else put(vectors, "vectors"),
            {name: put(array, name) for name, array in extra.items()},
            payload=None
            if payload is None
            else Payload(put(payload.file(), "payload"), payload.columns, len(ids)),
        )

    def rows_of(self, segment: Segment) -> Rowset:
        """The rows of a segment that were not removed, to be copied."""
        labels = None if self.sketch.places_rows else self.kind.labels_of(segment)
        return segment.rows(labels, self.sketch.by_row)

    def merged(self, segments: tuple[Segment, ...], put: Put = in_memory) -> tuple[Segment, ...]:
        """One segment of the rows of several; no segment if all rows were removed."""
        parts = [self.rows_of(segment) for segment in segments if segment.n_live]
        return (self.segment_of(joined(parts), put),) if parts else ()

    def with_rows(self, rows: Rowset, next_id: int, put: Put = in_memory) -> State:
        """The index with more rows, which are merged with small segments.

        A segment is large if it has at least half the size of a piece of a build, 128 MB; its rows
        are never moved. Among the small segments, in their order, look for the first that has no
        more rows than all later ones and the new rows together. This segment, all later ones and
        the new rows become one segment.

        Afterwards each small segment has more rows than all later ones together. So there are at
        most log2(rows of a large segment) + 1 small segments.

        A row that moves comes into a segment with at least twice as many rows as its old one. Its
        old segment was either the first, to which at least as many rows are added, or it came after
        a segment with more rows. So a row moves at most log2 times; each removed row may have
        caused one more move. All this counts only rows that were not removed.
        """
        if len(rows.ids) == 0:
            return self
        there = [segment for segment in self.segments if segment.n_live]
        kept, merged = there, [rows]
        payload_bytes = 0 if rows.payload is None else rows.payload.nbytes // len(rows.ids)
        if not self._is_large(len(rows.ids), rows.ids.itemsize + payload_bytes):
            sizes = [s.ids.itemsize + s.payload_bytes // s.n_rows for s in there]
            marks = [self._is_large(s.n_live, size) for s, size in zip(there, sizes, strict=True)]
            large = [s for s, is_large in zip(there, marks, strict=True) if is_large]
            small = [s for s, is_large in zip(there, marks, strict=True) if not is_large]
            first, n_behind = len(small), len(rows.ids)
            for at in reversed(range(len(small))):
                if small[at].n_live <= n_behind:
                    first = at
                n_behind += small[at].n_live
            kept = large + small[:first]
            merged = [*map(self.rows_of, small[first:]), rows]
        new = self.segment_of(joined(merged), put)
        return replace(self, segments=(*kept, new), next_id=next_id)

    def _is_large(self, n_rows: int, own_bytes: int) -> bool:
        """Whether a segment is large; ``own_bytes`` are those of an id and payload."""
        return 2 * n_rows >= placing.piece_rows(self.bytes_a_row(own_bytes), placing.PIECE_BYTES)


def content_of(state: State, unchanged: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The content of the folder of an index: numbers, texts and arrays.

    Parameters
    ----------
    state : the index
    unchanged : the old content of the folder, if the index has learnt nothing new. The parts in
        CHECKED are taken from it, so that their arrays are not written again.
    """
    if unchanged is None:
        unchanged = {"kind_settings": dict(state.kind.settings()), **state.sketch.settings()}
    return {
        "kind": state.kind.name,
        "kind_settings": unchanged["kind_settings"],
        "metric": state.metric,
        "n_bits": state.sketch.n_bits,
        "n_features": state.sketch.n_features,
        "ids": state.id_type,
        "vectors": state.vector_type,
        "next_id": state.next_id,
        "reason": state.reason,
        "settings": _content_of_settings(state.settings),
        **{name: unchanged[name] for name in _OF_SKETCHES if name in unchanged},
        **({} if state.payload is None else {"payload": [[*pair] for pair in state.payload]}),
        "segments": [_content_of_segment(segment) for segment in state.segments],
    }


def _content_of_settings(settings: Settings) -> dict[str, Any]:
    content: dict[str, Any] = {"candidates": settings.candidates, "probes": settings.probes}
    if settings.reach is not None:  # since version 2
        content["reach"] = settings.reach._asdict()
        content["reaches"] = [reach._asdict() for reach in settings.reaches]
    return content


def _content_of_segment(segment: Segment) -> dict[str, Any]:
    content: dict[str, Any] = {"ids": segment.ids, **segment.columns}
    if segment.vectors is not None:
        content["vectors"] = segment.vectors
    if len(segment.removed):
        content["removed"] = segment.removed
    if segment.payload is not None:
        content["payload"] = segment.payload.array
    return content | dict(segment.extra)


def state_from(content: Mapping[str, Any], before: State | None = None) -> State:
    """The index in a folder; an error if its parts do not fit together.

    The numbers of each row are not checked here; kernels that read them never leave their arrays.
    Payloads that the state ``before`` has read are not read again.
    """
    try:
        return _state_from(content, before)
    except FileError:
        raise
    except (DensehashError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"the index cannot be read: {error}") from None


def state_at(folder: Path, content: Mapping[str, Any], before: State | None = None) -> State:
    """The index in a folder, as :func:`state_from` reads it; an error names the folder.

    Examples
    --------
    >>> state_at(Path("a.dh"), {})
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: a.dh: the index cannot be read: 'metric'
    """
    try:
        return state_from(content, before)
    except FileError as error:
        raise FileError(f"{folder}: {error}") from None


def with_segments_of(state: State, content: Mapping[str, Any]) -> State:
    """The same index, with its rows read from the content that was just written."""
    return replace(
        state, segments=tuple(_segment_from(part, state, state) for part in content["segments"])
    )


def _state_from(content: Mapping[str, Any], before: State | None) -> State:
    check_choice(content["metric"], "metric", (*METRICS, HAMMING))
    check_choice(content["ids"], "ids", ("int64", "string"))
    if content["vectors"] is not None:
        check_choice(content["vectors"], "vectors", VECTOR_TYPES)
    n_features = check_integer(content["n_features"], "n_features", 1)
    kind = kind_from(
        content["kind"],
        content["kind_settings"],
        n_bits=check_integer(content["n_bits"], "n_bits", 0, MAX_BITS),
        # Ready-made codes are grouped by their bits.
        n_features=content["n_bits"] if content.get("sketch") == Bits.name else n_features,
    )
    sketch = sketch_from(content, kind)
    if content["metric"] == HAMMING and not isinstance(sketch, Bits):
        raise FileError(f"the metric {HAMMING} is for {Bits.name}, not for {sketch.name}")
    state = State(
        sketch,
        kind,
        content["metric"],
        content["ids"],
        content["vectors"],
        next_id=check_integer(content["next_id"], "next_id", 0),
        reason=str(content["reason"]),
        settings=_settings_from(content["settings"]),
        payload=check_columns(content["payload"]) if "payload" in content else None,
    )
    if not isinstance(content["segments"], list):
        raise FileError("the segments are not a list")
    segments = tuple(_segment_from(part, state, before) for part in content["segments"])
    return replace(state, segments=segments)


def _settings_from(content: Mapping[str, Any]) -> Settings:
    candidates, probes = (
        None if content[name] is None else check_integer(content[name], name, 1)
        for name in ("candidates", "probes")
    )
    if "reach" not in content:
        return Settings(candidates, probes)
    reaches = tuple(_reach_from(part) for part in content["reaches"])
    return Settings(candidates, probes, _reach_from(content["reach"]), reaches)


def _reach_from(content: Mapping[str, Any]) -> Reach:
    spread, stop = (check_positive(content[name], name) for name in ("spread", "stop"))
    recall, expected = (content[name] for name in ("recall", "expected"))
    if not (isinstance(expected, (int, float)) and 0 <= expected <= 1):
        raise FileError(f"an expected recall must be from 0 to 1, got {expected!r}")
    probes = check_integer(content["probes"], "probes", 1)
    return Reach(check_recall(recall), spread, stop, probes, float(expected))


def _segment_from(part: Mapping[str, Any], state: State, before: State | None) -> Segment:
    ids = part["ids"]
    id_type = np.int64 if state.id_type == "int64" else np.bytes_
    check_stored(ids, "ids", id_type, (None,))
    n = len(ids)
    if not 1 <= n <= MOST_ROWS:
        raise FileError(f"a segment has {n} rows, expected 1 to {MOST_ROWS}")
    columns = state.sketch.checked(part, n)
    vectors = part["vectors"] if state.vector_type is not None else None
    if vectors is not None:
        shape = (n, state.sketch.n_features)
        check_stored(vectors, "vectors", np.dtype(str(state.vector_type)).type, shape)
    removed = part.get("removed", np.empty(0, np.uint32))
    check_stored(removed, "removed", np.uint32, (None,))
    if len(removed) and (removed[-1] >= n or not bool((removed[:-1] < removed[1:]).all())):
        raise FileError("the removed rows of a segment are not rising, or beyond its rows")
    extra_names = () if state.sketch.places_rows else state.kind.extra_names
    extra = {name: part[name] for name in extra_names}
    known = {"ids", *columns, "vectors", "removed", *extra, "payload"}
    if (
        not set(part) <= known
        or ("vectors" in part) != (vectors is not None)
        or ("payload" in part) != (state.payload is not None)
    ):
        raise FileError(f"a segment has {', '.join(sorted(part))}; known are {', '.join(known)}")
    if not state.sketch.places_rows:
        state.kind.check_extra(extra, n)
    payload = _payload_from(part["payload"], state.payload, n, before) if state.payload else None
    return Segment(ids, columns, vectors, extra, removed, payload)


def _payload_from(array: Any, columns: Columns, n_rows: int, before: State | None) -> Payload:
    check_stored(array, "payload", np.uint8, (None,))
    for segment in () if before is None else before.segments:
        known = segment.payload
        same = known is not None and known.array is array
        if known is not None and same and (known.columns, known.n_rows) == (columns, n_rows):
            return known
    return Payload(array, columns, n_rows)
