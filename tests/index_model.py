"""A model of an index that compares every row with every query: slow, but short and clear."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash import asymmetric
from densehash.hashers import Hasher
from densehash.index.grouping import Centers
from densehash.index.lengths import unit
from densehash.index.sketches import Products
from densehash.rows import Rows

Id = Any  # int or str
Match = Callable[[Id], bool]

FEWEST = 10  # candidates at first, in a search of all within a radius
WIDER = 4  # times as many candidates, if all were within the radius


class Answer(NamedTuple):
    """Neighbours of one query, in order, and the distances of all possible ones."""

    ids: list[Id]
    distances: NDArray[Any]
    of: dict[Id, Any]


class Model:
    """Rows by id.

    Parameters
    ----------
    hasher : a fitted hasher
    metric : "l2", "cosine" or "ip"
    vector_type : the type of kept vectors, or None
    centers : centres of the groups, if the kind has groups
    waits : whether it has learnt nothing yet, so that every row is compared
    products : the sketch, where rows are ranked by estimated products
    """

    def __init__(
        self,
        hasher: Hasher,
        *,
        metric: str = "l2",
        vector_type: str | None = "float32",
        centers: Centers | None = None,
        waits: bool = False,
        products: Products | None = None,
    ) -> None:
        self.products = products
        self.hasher, self.metric, self.vector_type = hasher, metric, vector_type
        self.centers, self.waits = centers, waits
        self.rows: dict[Id, tuple[Any, Any, int]] = {}  # vector, code, group
        self.payloads: dict[Id, Any] = {}  # dicts

    def copy(self) -> Model:
        """An independent copy."""
        new = copy.copy(self)
        new.__dict__.pop("table", None)
        new.rows, new.payloads = dict(self.rows), dict(self.payloads)
        return new

    def __len__(self) -> int:
        return len(self.rows)

    # --- changed ------------------------------------------------------------------------------

    def put(self, ids: Iterable[Id], X: NDArray[Any], payload: Sequence[Any] | None = None) -> None:
        """Add rows, or replace them; without a new payload, they keep the old one."""
        ids = [*ids]
        if payload is not None:
            self.payloads.update(zip(ids, payload, strict=True))
        kept = X if self.vector_type is None else X.astype(self.vector_type)
        hashed = self.hashed(X)
        groups = [0] * len(X)
        if self.centers is not None:
            groups = self.centers.labels(Rows(hashed)).tolist()
        rows = zip(kept, self.hasher.transform(self.coded(X)), groups, strict=True)
        self.rows.update(zip(ids, rows, strict=True))
        self.__dict__.pop("table", None)

    def remove(self, ids: Iterable[Id]) -> int:
        """Remove rows, and return how many there were."""
        ids = set(ids)
        gone = [self.rows.pop(name, None) for name in ids]
        for name in ids:
            self.payloads.pop(name, None)
        self.__dict__.pop("table", None)
        return sum(one is not None for one in gone)

    def hashed(self, X: NDArray[Any]) -> NDArray[Any]:
        """Rows or queries in the form in which they are grouped."""
        return unit(X) if self.metric == "cosine" else X

    def coded(self, X: NDArray[Any]) -> NDArray[Any]:
        """Rows, or queries, as they are hashed."""
        return self.hashed(X) if self.products is None else unit(X) * self.products.length

    # --- asked --------------------------------------------------------------------------------

    @property
    def ids(self) -> list[Id]:
        """All ids, ascending."""
        return self.table[0]

    @cached_property
    def table(self) -> tuple[list[Id], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Ids, ascending; vectors; codes, one bit per byte; groups."""
        ids = sorted(self.rows)
        width = -(-self.hasher.n_bits_ // 8)
        d = self.hasher.n_features_in_
        vectors = np.array([self.rows[name][0] for name in ids]).reshape(len(ids), d)
        codes = np.array([self.rows[name][1] for name in ids], np.uint8).reshape(len(ids), width)
        return ids, vectors, codes, np.array([self.rows[name][2] for name in ids], np.int64)

    def distances(self, Q: NDArray[Any], rerank: str | None, metric: str) -> NDArray[Any]:
        """The distances of all queries (q,) to all rows (n,), in the order of the ids."""
        _, vectors, codes, _ = self.table
        if rerank is None:
            bits = bits_between(self.hasher.transform(self.coded(Q)), codes)
            if self.products is None:
                return bits
            (zero, slope), n_bits = self.products.by_bits, self.hasher.n_bits_
            factors = length_of(Q) * np.float32(slope / n_bits)
            cosines = (bits.astype(np.float32) - np.float32(zero * n_bits)) * factors[:, np.newaxis]
            return length_of(vectors) * cosines
        if len(codes) == 0:
            return np.zeros((len(Q), 0), np.float32)
        if rerank == "asymmetric":
            margins = self.hasher.project(self.coded(Q))
            sums = asymmetric.distances(margins, codes)
            if self.products is None:
                return sums
            zero, slope = self.products.by_margins
            shares = sums / np.abs(margins).sum(axis=1)[:, np.newaxis]
            found: NDArray[Any] = (
                (shares - zero) * slope * np.outer(length_of(Q), length_of(vectors))
            )
            return found.astype(np.float32)
        return true_distances(Q, vectors, metric)

    def hits(
        self,
        Q: NDArray[Any],
        k: int,
        *,
        candidates: int = 10**9,
        rerank: str | None = "exact",
        metric: str | None = None,
        match: Match | None = None,
        radius: float = np.inf,
        own: bool | Sequence[Id] = False,
        probes: int | None = None,
    ) -> list[Answer]:
        """The k nearest rows of every query."""
        if self.waits:
            candidates, rerank, probes = 10**9, "exact", None
        more = 0 if own is False else 1
        n = (k if rerank is None else max(min(candidates, len(self)), k)) + more
        answers = []
        for query, near, of in self._asked(Q, rerank, metric, match, probes):
            pool = near(n, k + more)
            ranked = sorted(pool, key=lambda name: (of[name], name))[: k + more]
            gone = self._own(Q[query], ranked, own if isinstance(own, bool) else own[query])
            left = [name for name in ranked if name != gone][:k]
            answers.append(_answer(left, of, radius, rerank))
        return answers

    def ranges(
        self,
        Q: NDArray[Any],
        radius: float,
        *,
        candidates: int = 10**9,
        rerank: str | None = "exact",
        metric: str | None = None,
        match: Match | None = None,
        own: bool | Sequence[Id] = False,
        probes: int | None = None,
    ) -> list[Answer]:
        """All rows within a radius of every query."""
        if self.waits:
            candidates, rerank, probes = 10**9, "exact", None
        answers = []
        for query, near, of in self._asked(Q, rerank, metric, match, probes):
            n = len(self) if rerank is None else min(max(candidates, FEWEST), len(self))
            while True:
                ranked = sorted(near(n, n), key=lambda name: (of[name], name))
                inside = [name for name in ranked if of[name] <= radius]
                if len(inside) < n or n >= len(self):
                    break
                n = min(WIDER * n, len(self))
            gone = self._own(Q[query], ranked, own if isinstance(own, bool) else own[query])
            left = [name for name in inside if name != gone]
            answers.append(_answer(left, of, np.inf, rerank))
        return answers

    def pairs(self, radius: float, rerank: str | None = None) -> list[tuple[Any, Id, Id]]:
        """All pairs of rows within a radius: (distance, smaller id, larger id), in order."""
        ids, vectors, codes, _ = self.table
        if rerank is None:
            far: NDArray[Any] = bits_between(codes, codes)
        else:
            far = true_distances(vectors, vectors, self.metric)
        return sorted(
            (far[one, two], ids[one], ids[two])
            for two in range(len(ids))
            for one in range(two)
            if far[one, two] <= radius
        )

    def _asked(
        self,
        Q: NDArray[Any],
        rerank: str | None,
        metric: str | None,
        match: Match | None,
        probes: int | None,
    ) -> Iterable[tuple[int, Callable[[int, int], list[Id]], dict[Id, Any]]]:
        """For each query: a function of n and k that returns its candidates, and all distances."""
        ids, _, _, groups = self.table
        ruler = metric or self.metric
        hamming = self.distances(Q, None, ruler)
        reranked = self.distances(Q, rerank, ruler)
        scores = None
        if self.centers is not None and probes is not None and probes < len(self.centers):
            floats = self.hashed(Q).astype(np.promote_types(Q.dtype, np.float32))
            scores = self.centers.scores(floats, "l2" if self.metric == "cosine" else ruler)
        for query in range(len(Q)):
            may = [at for at, name in enumerate(ids) if match is None or match(name)]
            visited = may
            if scores is not None:
                nearest = np.argsort(-scores[query], kind="stable")[:probes]
                visited = [at for at in may if groups[at] in nearest]
            bits = hamming[query].tolist()

            def near(
                n: int,
                k: int,
                may: list[int] = may,
                visited: list[int] = visited,
                bits: list[int] = bits,
            ) -> list[Id]:
                pool = visited if len(visited) >= min(k, len(may)) else may
                return [ids[at] for at in sorted(pool, key=lambda at: (bits[at], at))[:n]]

            yield query, near, dict(zip(ids, reranked[query], strict=True))

    def _own(self, query: NDArray[Any], ranked: list[Id], own: Any) -> Id | None:
        """The row that a query must not find."""
        if own is False:
            return None
        if own is not True:
            return own
        for name in ranked:
            vector, code, _ = self.rows[name]
            if self.vector_type is None:
                asked = self.hasher.transform(self.coded(query[np.newaxis]))[0]
                same = np.array_equal(asked, code)
                if self.products is not None:
                    same &= bool(length_of(query[np.newaxis]) == length_of(vector[np.newaxis]))
            elif vector.dtype.kind == "f":  # in the type in which it would be kept
                with np.errstate(over="ignore"):
                    same = np.array_equal(query.astype(vector.dtype), vector)
            else:
                same = np.array_equal(query.astype(np.float64), vector.astype(np.float64))
            if same:
                return name
        return None


def length_of(X: NDArray[Any]) -> NDArray[np.float32]:
    """Lengths of rows."""
    return np.asarray(np.sqrt((X.astype(np.float64) ** 2).sum(axis=1)), np.float32)


def bits_between(queries: NDArray[np.uint8], codes: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Hamming distances (q, n)."""
    both = np.unpackbits(queries[:, np.newaxis] ^ codes, axis=2)
    found: NDArray[np.int32] = both.sum(axis=2, dtype=np.int32)
    return found


def true_distances(Q: NDArray[Any], X: NDArray[Any], metric: str) -> NDArray[np.float32]:
    """Distances of vectors, in float64, rounded once."""
    asked, rows = Q.astype(np.float64), X.astype(np.float64)
    if metric == "l2":
        squares: NDArray[Any] = ((asked[:, np.newaxis] - rows) ** 2).sum(axis=2)
        return np.asarray(np.sqrt(squares), np.float32)
    products: NDArray[Any] = asked @ rows.T
    if metric == "ip":
        return np.asarray(-products, np.float32)
    lengths: NDArray[Any] = np.sqrt(np.outer((asked**2).sum(axis=1), (rows**2).sum(axis=1)))
    with np.errstate(divide="ignore", invalid="ignore"):
        found: NDArray[Any] = np.where(lengths == 0, 1, 1 - products / lengths)
    return found.astype(np.float32)


def _answer(names: list[Id], of: dict[Id, Any], radius: float, rerank: str | None) -> Answer:
    inside = [name for name in names if of[name] <= radius]
    counted = rerank is None and not any(isinstance(far, np.float32) for far in of.values())
    dtype = np.int32 if counted else np.float32
    return Answer(inside, np.array([of[name] for name in inside], dtype), of)
