"""The sketch of signs: a row is kept as signs and two factors, from which distances are estimated.

See :mod:`densehash.index.sketches.decoder` for the estimate. Rows that may be among the nearest by
this estimate are compared exactly if vectors are kept, and by a second sketch if not. The sketch
works with two kinds: flat, which is one group, and grouped. Signs describe how a row differs from
the centre of its group, or from the centres of its two groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash import _native
from densehash.checks import check_integer
from densehash.errors import FileError, InputError
from densehash.index.grouping import Centers
from densehash.index.ids import native_ids
from densehash.index.kinds import Flat, Grouped, Kind
from densehash.index.native import damaged
from densehash.index.ordering import Found, with_wider
from densehash.index.placing import Put, in_memory
from densehash.index.queries import EVERYTHING, Prepared, Question, Reach, Request
from densehash.index.segment import Segment
from densehash.index.sketches import entries
from densehash.index.sketches.calibration import calibrated
from densehash.index.sketches.decoder import Decoder
from densehash.index.sketches.entries import ByRow, Entries, Lengths, Second, SignModel
from densehash.index.sketches.second import SecondDecoder, n_second_bits
from densehash.index.sketches.sign_search import Frugal, SignSearch, marks_of, masks_of
from densehash.index.sketches.sketch import Column, Sketch
from densehash.index.stored import check_stored
from densehash.index.visits import Matches
from densehash.rows import Floats, Rows
from densehash.rows.local import is_fine
from densehash.rows.numerics import as_type, like, to_host
from densehash.source import Source

__all__ = [
    "MOST_BITS",
    "SignQueries",
    "Signs",
    "can_have",
    "check_bits",
    "check_size",
]

MOST_BITS = 1024
"""The most signs of a row."""

_SAMPLE = 8_192  # residuals from which the decoder learns; more make no visible difference
_WIDE = 128  # rows of more features get more bits
_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))
_COLUMNS = ("signs", "entry_limits", "entry_rows")


class SignQueries(Prepared):
    """Queries as they are: native code computes all that it needs from them."""

    def __init__(self, vectors: NDArray[Any]) -> None:
        self.vectors = vectors

    def __len__(self) -> int:
        return len(self.vectors)

    def some(self, which: slice | NDArray[np.intp]) -> SignQueries:
        """The same for some of the queries."""
        return SignQueries(self.vectors[which])

    def to_send(self, *, margins: bool) -> SignQueries:  # noqa: ARG002
        """The same: it has only arrays."""
        return self


class Signs(Sketch):
    """Signs with a decoder.

    Parameters
    ----------
    model : what all segments share
    n_copies : how many entries a row has: one in each of its 1 or 2 groups
    scaled : whether vectors are kept as whole numbers with a scale for each row

    Examples
    --------
    >>> rows = Rows(RandomState(0).standard_normal((500, 8)).astype(np.float32))
    >>> sketch = Signs.learn(rows, Flat(), n_bits=16, metric="l2", random_state=RandomState(0))
    >>> sketch.bytes_a_row
    10
    """

    name: ClassVar[str] = "signs"
    kinds: ClassVar[tuple[str, ...]] = (Flat.name, Grouped.name)
    most_groups_a_row: ClassVar[int] = 2
    takes_scales: ClassVar[bool] = True
    distance_type: ClassVar[type[np.generic]] = np.float32
    estimates: ClassVar[bool] = True
    places_rows: ClassVar[bool] = True
    format_version: ClassVar[int] = 2

    def __init__(self, model: SignModel, n_copies: int, *, scaled: bool = False) -> None:
        self.model, self.n_copies, self.scaled = model, n_copies, scaled
        # Searchers of the segments of the last search, with vectors and without.
        self._searchers: dict[bool, tuple[Sequence[Segment], _native.Signs]] = {}

    @classmethod
    def n_bits_for(cls, n_features: int, n_bits: int | None) -> int:
        """How many signs a row has.

        Examples
        --------
        >>> Signs.n_bits_for(100, None), Signs.n_bits_for(960, None), Signs.n_bits_for(960, 64)
        (160, 256, 64)
        """
        usual = 160 if n_features <= _WIDE else 256
        return usual if n_bits is None else check_bits(n_bits)

    @classmethod
    def learn(
        cls,
        rows: Rows,
        kind: Kind,
        *,
        n_bits: int,
        metric: str,
        random_state: RandomState,
        n_copies: int = 1,
        second: bool = False,
        scaled: bool = False,
    ) -> Signs:
        """The sketch that suits rows.

        Parameters
        ----------
        rows : the rows of the index, of length one if the metric is "cosine"
        kind : flat or grouped
        n_bits : signs of a row, a multiple of 8 from 8 to 1,024
        metric : "l2", "cosine" or "ip"
        random_state : draws rows to learn from, and a rotation
        n_copies : in how many groups a row lies, 1 or 2; 2 needs groups, and no second sketch
        second : whether rows are compared by a second sketch, because no vectors are kept
        scaled : whether vectors are kept as whole numbers with a scale for each row
        """
        # So few rows can be copied to the host, wherever they are.
        sample = to_host(rows.sample(min(rows.n_rows, _SAMPLE // n_copies), random_state))
        if isinstance(kind, Grouped):
            labels = kind.labels(sample).astype(np.uint32)
            centers, shift, lengths = _parts(kind.centers)
        else:
            lengths = None
            labels = np.zeros(len(sample), np.uint32)
            shift = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
            centers = np.zeros((1, len(shift)), np.float32)
        relative = _relative(sample, shift)
        if n_copies == 2:  # the decoder sees both residuals of a row
            others = entries.second_groups(relative, labels, centers)
            relative, labels = np.tile(relative, (2, 1)), np.concatenate([labels, others])
        model = SignModel.learn(relative, labels, centers, shift, n_bits, metric, random_state)
        model = replace(model, lengths=lengths)
        if second:
            model = model.with_second(relative, labels, n_second_bits(n_bits, relative.shape[1]))
        return cls(model, n_copies, scaled=scaled)

    # --- what it is ---------------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        """Features of a row."""
        return len(self.model.shift)

    @property
    def n_bits(self) -> int:
        """Signs of an entry."""
        return self.model.decoder.n_bits

    @property
    def n_groups(self) -> int:
        """Groups that a search may visit."""
        return len(self.model.centers)

    @property
    def columns(self) -> tuple[Column, ...]:
        """By row: its groups, signs and factors. Segments hold them by group."""
        c = self.n_copies
        return (
            Column("labels", np.uint32, (c,)),
            Column("codes", np.uint8, (c * self.n_bits // 8,)),
            Column("factors", np.int16, (c * 2,)),
            *self._by_rank,
        )

    @property
    def _by_rank(self) -> tuple[Column, ...]:
        """The columns that segments, too, hold by row."""
        found: list[Column] = []
        if self.model.second is not None:
            found.append(Column("second", np.uint8, (self.model.second.n_bits // 8,)))
            found.append(Column("second_factors", np.uint32, (1,)))
        if self.scaled:
            found.append(Column("scales", np.float32, (1,)))
        return tuple(found)

    @property
    def in_words(self) -> str:
        """How many bits, and in how many groups."""
        second = self.model.second
        bits = f"{self.n_bits}" + ("" if second is None else f" and {second.n_bits}")
        return f"signs of {bits} bits" + (" in two groups" if self.n_copies == 2 else "")

    @property
    def about(self) -> Mapping[str, Any]:
        """The length of its codes, and in how many groups a row lies."""
        second = 0 if self.model.second is None else self.model.second.n_bits
        return {"bits": self.n_bits, "second_bits": second, "groups_a_row": self.n_copies}

    def settings(self) -> Mapping[str, Any]:
        """The decoder, and the shift that is subtracted from rows."""
        model = self.model
        settings: dict[str, Any] = {
            "groups_a_row": self.n_copies,
            "shift": model.shift,
            "decoder": model.decoder.content(),
            "scaled": self.scaled,
        }
        if model.second is not None:
            settings["second"] = model.second.content()
        return {"sketch": self.name, "sketch_settings": settings}

    @classmethod
    def from_settings(cls, content: Mapping[str, Any], kind: Kind) -> Signs:
        """The sketch from a file."""
        if kind.name not in cls.kinds:
            raise FileError(f"an index of signs is {' or '.join(cls.kinds)}, not {kind.name}")
        stored, d, n_bits = content["sketch_settings"], content["n_features"], content["n_bits"]
        check_bits(n_bits)
        shift = stored["shift"]
        check_stored(shift, "shift", np.float32, (d,))
        centers, lengths = np.zeros((1, d), np.float32), None
        if isinstance(kind, Grouped):
            centers, of_kind, lengths = _parts(kind.centers)
            if not np.array_equal(shift, of_kind):
                raise FileError("the centers and the signs are relative to another shift")
        if not bool(np.isfinite(shift).all() and np.isfinite(centers).all()):
            raise FileError("the shift or the centers are not finite")
        decoder = Decoder.from_content(stored["decoder"], n_bits, d, content["metric"])
        second = None
        if "second" in stored:
            second = SecondDecoder.from_content(stored["second"], d)
        most = 1 if second is not None else min(2, len(centers))
        n_copies = check_integer(stored["groups_a_row"], "groups_a_row", 1, most)
        scaled = stored["scaled"]
        if not isinstance(scaled, bool) or (scaled and content["vectors"] != "int8"):
            raise FileError(f"scaled must be true or false, and true only for int8, got {scaled!r}")
        if (second is not None) and content["vectors"] is not None:
            raise FileError("an index has vectors or a second sketch, not both")
        return cls(SignModel(shift, centers, decoder, second, lengths), n_copies, scaled=scaled)

    # --- rows ---------------------------------------------------------------------------------

    def encode(self, rows: Floats, groups: NDArray[np.integer] | None) -> dict[str, NDArray[Any]]:
        """Groups, signs and factors of rows."""
        relative, centers = _relative(rows, self.model.shift), self.model.centers
        first = np.zeros(len(rows), np.uint32) if groups is None else groups.astype(np.uint32)
        labels = first[:, np.newaxis]
        if self.n_copies == 2:
            second = entries.second_groups(to_host(relative), first, centers, self.model.near)
            labels = np.stack([first, second], axis=1)
        kept = self.model.encode(relative, labels)
        columns = self._flat(kept)
        if self.model.second is not None:
            codes, factors = self.model.encode_second(to_host(relative), kept)
            columns |= {"second": codes, "second_factors": factors[:, np.newaxis]}
        return columns

    def placed(
        self, columns: Mapping[str, NDArray[Any] | Source], put: Put
    ) -> dict[str, NDArray[Any]]:
        """Entries by group, in blocks."""
        order, limits = entries.placed(in_memory(columns["labels"], "labels"), self.n_groups)
        blocks = entries.Blocks(columns["codes"], columns["factors"], order, self.n_copies)
        rows = entries.numbers_of(order, self.n_copies)
        parts: tuple[NDArray[Any] | Source, ...] = (blocks, limits, rows)
        placed = {name: put(part, name) for name, part in zip(_COLUMNS, parts, strict=True)}
        return placed | {one.name: put(columns[one.name], one.name) for one in self._by_rank}

    def by_row(self, segment: Segment) -> Mapping[str, NDArray[Any]]:
        """Groups, signs and factors of one row after the other."""
        kept = self._flat(entries.rows_of(_entries_of(segment), segment.n_rows))
        return kept | {one.name: segment.columns[one.name] for one in self._by_rank}

    def _flat(self, kept: ByRow) -> dict[str, NDArray[Any]]:
        """Columns of two dimensions."""
        return {name: part.reshape(len(part), -1) for name, part in kept._asdict().items()}

    def checked(self, part: Mapping[str, Any], n_rows: int) -> dict[str, NDArray[Any]]:
        """The columns of a segment from a file; searches check the rows that entries name."""
        blocks, limits, rows = (part[name] for name in _COLUMNS)
        n = n_rows * self.n_copies
        check_stored(blocks, "signs", np.uint8, (-(-n // 32), 4 * self.n_bits + 128))
        check_stored(limits, "entry_limits", np.int64, (self.n_groups + 1,))
        check_stored(rows, "entry_rows", np.uint32, (n,))
        if limits[0] != 0 or limits[-1] != n or bool((limits[1:] < limits[:-1]).any()):
            raise FileError("the limits of groups do not rise from 0 to the number of entries")
        found = dict(zip(_COLUMNS, (blocks, limits, rows), strict=True))
        for one in self._by_rank:
            check_stored(part[one.name], one.name, one.dtype, (n_rows, *one.shape))
            found[one.name] = part[one.name]
        return found

    def forget(self) -> None:
        """Free products of the decoder: for 50,000 wide rows, about 40 bytes for each row."""
        model = self.model
        second = None if model.second is None else replace(model.second)
        self.model = replace(model, decoder=replace(model.decoder), second=second)

    def vectors_of(
        self,
        segment: Segment,  # noqa: ARG002
        positions: NDArray[np.integer],  # noqa: ARG002
    ) -> NDArray[np.float32]:
        """Raises an error: signs are too little to search with."""
        raise InputError(
            "a search for rows of the index needs their vectors, and this index keeps none: build "
            "it with keep_vectors=True"
        )

    # --- queries ------------------------------------------------------------------------------

    def prepare(self, queries: NDArray[Any]) -> SignQueries:
        """Queries as they are; refuses numbers that are too large."""
        check_size(queries)
        return SignQueries(queries)

    def plainly(
        self,
        segments: Sequence[Segment],
        queries: NDArray[Any],
        k: int,
        reach: Reach | None,
        allowed: Matches,
        n_threads: int,
    ) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.int32]] | None:
        """For queries that native code can read as they are, or almost."""
        if not segments or reach is None or queries.ndim != 2:
            return None
        vectors = segments[0].vectors
        own = np.float32 if vectors is None or self.scaled else vectors.dtype
        if queries.dtype == np.float64 or (queries.dtype in _BYTES and queries.dtype != own):
            with np.errstate(over="ignore"):  # the longer way refuses numbers that do not fit
                queries = queries.astype(np.float32, order="C")
        elif not queries.flags.c_contiguous:
            queries = np.ascontiguousarray(queries)
        exact = vectors is not None
        searcher = self._searcher(segments, exact=exact)
        marks = marks_of(segments, searcher, allowed, exact=exact)
        marks.n_queries += len(queries)
        try:
            if marks.rows is not None:
                few = marks.few_of(segments, scaled=self.scaled)
                return None if few is None else searcher.among(queries, k, *few, n_threads)
            _, spread, stop, probes, _ = marks.reach_from(reach)
            wanted = marks.n_allowed, marks.masks, marks.groups, marks.entries_of(searcher)
            return searcher.plain(queries, k, probes, spread, stop, n_threads, *wanted)
        except (TypeError, UnicodeDecodeError):
            # Native code does not know the type, or an id is damaged: the longer way converts the
            # queries, or says what is wrong.
            return None
        except RuntimeError as error:
            raise damaged(error) from None

    def at_once(
        self,
        kind: Kind,  # noqa: ARG002
        segments: Sequence[Segment],
        asked: Question,
        request: Request,
    ) -> Found:
        """The k neighbours of each query, by distance or by estimate."""
        exact = request.rerank == "exact"
        queries = _compared(asked.vectors, segments, exact=exact and not self.scaled)
        searcher = self._searcher(segments, exact=exact)
        reach = EVERYTHING if request.reach is None else request.reach
        marks = marks_of(segments, searcher, request.allowed, exact=exact)
        look = SignSearch(segments, searcher, reach, marks, asked.n_threads)
        k = min(request.k, marks.n_rows)
        everyone = np.arange(len(queries))
        efforts = np.zeros((len(queries), 3), np.int32)
        found = look(queries, k, everyone, efforts)
        wanted = min(k, marks.n_allowed)
        if wanted and bool((found.positions[:, wanted - 1] < 0).any()):
            # The visited groups may have too few rows: these queries then look everywhere.
            lacking = np.flatnonzero(found.positions[:, wanted - 1] < 0)
            look.reach = look.reach._replace(stop=EVERYTHING.stop, probes=EVERYTHING.probes)
            found = Found(
                *with_wider(found, lacking, lambda some: look(queries[some], k, some, efforts))
            )
        if request.watch is not None:
            request.watch(efforts)
        return found

    def reaches(
        self,
        segments: Sequence[Segment],
        queries: NDArray[Any],
        truth: NDArray[Any],
        recalls: Sequence[float],
        *,
        k: int,
        exact: bool,
        own: NDArray[np.int64] | None = None,
    ) -> tuple[Reach, ...]:
        """How far a search must look to find some shares of the nearest rows."""
        return calibrated(
            self.model,
            Frugal(segments, self._searcher(segments, exact=exact)),
            _compared(queries, segments, exact=exact and not self.scaled),
            truth,
            recalls,
            k=k,
            own=own,
            allowed=masks_of([segment.live for segment in segments], segments),
        )

    def _searcher(self, segments: Sequence[Segment], *, exact: bool) -> _native.Signs:
        """The searcher of segments, which is kept until other segments are searched."""
        there = self._searchers.get(exact)
        if there is not None and there[0] is segments:
            return there[1]
        parts, first = [], 0
        for one in segments:
            second, scales = None, None
            if self.model.second is not None:
                second = Second(one.columns["second"], one.columns["second_factors"].reshape(-1))
            if self.scaled and exact:
                scales = one.columns["scales"].reshape(-1)
            vectors = one.kept if exact else None
            parts.append(
                entries.Segment(_entries_of(one), one.n_rows, vectors, None, first, second, scales)
            )
            first += one.n_rows
        searcher = self.model.searcher(parts)
        searcher.set_ids([native_ids(one.ids) for one in segments])
        self._searchers[exact] = segments, searcher
        return searcher

    def __getstate__(self) -> dict[str, Any]:
        # Native objects belong to this process.
        return {**self.__dict__, "_searchers": {}}

    def equal(
        self,
        segment: Segment,  # noqa: ARG002
        positions: NDArray[np.int64],  # noqa: ARG002
        prepared: Prepared,  # noqa: ARG002
        queries: NDArray[np.intp],  # noqa: ARG002
    ) -> NDArray[np.bool_]:
        """Raises an error: different rows may have equal signs, with two groups even often."""
        raise InputError(
            "exclude_self=True compares vectors, and this index keeps none: give the ids of the "
            "queries, or build it with keep_vectors=True"
        )


def _entries_of(segment: Segment) -> Entries:
    return Entries(*(segment.columns[name] for name in _COLUMNS))


def _parts(
    centers: Centers,
) -> tuple[NDArray[np.float32], NDArray[np.float32], Lengths | None]:
    """Centres of groups, the shift that was subtracted, and, for products, their lengths."""
    relative, shift = np.ascontiguousarray(centers.centers), centers.shift.astype(np.float32)
    if centers.longest is None:
        return relative, shift, None
    whole = relative + shift
    lengths = Lengths(np.einsum("ij,ij->i", whole, whole), centers.longest)
    return np.ascontiguousarray(relative[:, :-1]), shift[:-1].copy(), lengths


def _relative(rows: Floats, shift: NDArray[np.float32]) -> NDArray[np.float32]:
    relative: NDArray[np.float32] = as_type(rows - like(shift, rows), np.float32)
    return relative


def _compared(queries: NDArray[Any], segments: Sequence[Segment], *, exact: bool) -> NDArray[Any]:
    """Queries as native code needs them: integers, to compare with integers, or float32."""
    check_size(queries)
    if exact and queries.itemsize == 1 and queries.dtype == segments[0].kept.dtype:
        return queries
    return queries.astype(np.float32, copy=False)


def check_size(queries: NDArray[Any]) -> None:
    """Refuse numbers whose squares overflow; the error names one.

    Examples
    --------
    >>> check_size(np.ones((1, 4)))
    """
    if queries.dtype.kind == "f" and not is_fine(queries):
        Rows(queries).for_each(lambda *_: None)


def can_have(n_bits: Any) -> bool:
    """Whether rows may be kept as so many signs.

    Examples
    --------
    >>> can_have(128), can_have(100)
    (True, False)
    """
    return isinstance(n_bits, int) and 8 <= n_bits <= MOST_BITS and n_bits % 8 == 0


def check_bits(n_bits: int) -> int:
    """The number of signs of a row, checked.

    Examples
    --------
    >>> check_bits(100)
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: n_bits must be a multiple of 8 for signs, got 100
    """
    check_integer(n_bits, "n_bits", 8, MOST_BITS)
    if n_bits % 8:
        raise InputError(f"n_bits must be a multiple of 8 for signs, got {n_bits}")
    return n_bits
