"""What the benchmark of the index has measured, and what it had to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field

from hashers import Fact
from index_child import Cost
from index_multi import RADIUS, MultiResult
from index_peers import BUILD_THREADS, CONTESTANTS, Contestant, K, Setting

RECALL = 0.95


@dataclass(frozen=True)
class Point:
    """How a contestant did with one setting: recall@10, and queries a second."""

    setting: Setting
    recall: float
    speed: float

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.setting.items()) or "exact"


@dataclass(frozen=True)
class Measured:
    """All about one contestant; `tuned` is how it did after it had tuned itself."""

    contestant: Contestant
    cost: Cost
    points: list[Point]
    tuned: Point | None = None

    @property
    def fastest(self) -> Point | None:
        """The fastest setting with the recall that is asked for."""
        good = [point for point in self.points if point.recall >= RECALL]
        return max(good, key=lambda point: point.speed, default=None)

    @property
    def bytes_without_vectors(self) -> float:
        """Resident, of a row."""
        cost = self.cost
        vectors = cost.n_features * self.contestant.vector_bytes
        return cost.resident / cost.n_rows - vectors

    def record(self) -> dict[str, object]:
        """As plain data."""
        return {
            "name": self.contestant.name,
            "title": self.contestant.title,
            "cost": asdict(self.cost),
            "points": [asdict(point) for point in self.points],
            "tuned": asdict(self.tuned) if self.tuned else None,
            "fastest": asdict(self.fastest) if self.fastest else None,
        }


@dataclass(frozen=True)
class Pair:
    """Ours must answer `least` times as many queries a second as a peer."""

    ours: str
    peer: str
    least: float
    aim: float | None = None

    @property
    def required(self) -> str:
        return f"≥ {self.least:g} ×" + (f", aim {self.aim:g} ×" if self.aim else "")


PAIRS = (
    Pair("grouped", "hnsw32", 1.2, 2),
    Pair("grouped-float32", "hnsw32", 1.2, 2),
    Pair("flat", "sklearn", 20),
    Pair("flat-128", "sklearn", 20),
)


@dataclass(frozen=True)
class Duel:
    """Queries a second of a pair, in turns."""

    pair: Pair
    ours: float
    peer: float

    def fact(self) -> Fact:
        pair, ratio = self.pair, self.ours / self.peer
        return Fact(
            f"{title(pair.ours)}: queries a second at recall@{K} ≥ {RECALL:g}, 1 thread",
            f"{self.ours:,.0f} = {times(ratio)} {title(pair.peer)}'s {self.peer:,.0f}",
            pair.required,
            ratio >= pair.least,
        )


@dataclass
class Results:
    """Of a whole run, by the names of contestants."""

    n_rows: int
    n_queries: int
    measured: dict[str, Measured] = field(default_factory=dict)
    duels: list[Duel] = field(default_factory=list)
    multi: list[MultiResult] = field(default_factory=list)

    def facts(self) -> Iterator[Fact]:
        """What was asked for, as far as those who can tell took part."""
        for duel in self.duels:
            yield duel.fact()
        for name in ("grouped", "grouped-float32"):
            if name in self.measured and "hnsw32" in self.measured:
                yield build_fact(self.measured[name], self.measured["hnsw32"])
        for name in ("grouped-codes", "grouped", "grouped-float32"):
            if name in self.measured:
                yield memory_fact(self.measured[name])
        for name in ("grouped", "flat"):
            if name in self.measured:
                yield open_fact(self.measured[name].cost, title(name))
        yield from map(multi_fact, self.multi)

    def record(self) -> dict[str, object]:
        """As plain data."""
        return {
            "rows": self.n_rows,
            "queries": self.n_queries,
            "k": K,
            "recall": RECALL,
            "contestants": [each.record() for each in self.measured.values()],
            "duels": [asdict(duel) for duel in self.duels],
            "multi": [{**asdict(each), "ratio": each.ratio} for each in self.multi],
            "facts": [asdict(fact) for fact in self.facts()],
        }


def title(name: str) -> str:
    return CONTESTANTS[name].title


def times(ratio: float) -> str:
    return f"{ratio:,.0f} ×" if ratio >= 100 else f"{ratio:.3g} ×"


def build_fact(ours: Measured, peer: Measured) -> Fact:
    ours_s, peer_s = ours.cost.build_s, peer.cost.build_s
    ratio = peer_s / ours_s
    return Fact(
        f"{ours.contestant.title}: build from vectors, {BUILD_THREADS} threads",
        f"{ours_s:.2f} s; {peer.contestant.title} {peer_s:.1f} s = {times(ratio)}",
        "≥ 15 ×, aim 30 ×",
        ratio >= 15,
    )


def memory_fact(ours: Measured) -> Fact:
    size = ours.bytes_without_vectors
    return Fact(
        f"{ours.contestant.title}: memory without vectors, 256 bits and ids",
        f"{size:.1f} bytes a row",
        "≤ 48",
        size <= 48,
    )


def open_fact(cost: Cost, name: str) -> Fact:
    took = 1e3 * (cost.open_s or 0)
    return Fact(f"{name}: opening {cost.n_rows:,} rows", f"{took:.1f} ms", "< 50 ms", took < 50)


def multi_fact(result: MultiResult) -> Fact:
    return Fact(
        f"densehash multi: radius {RADIUS} in {result.n_codes:,} codes, {result.codes}",
        f"{times(result.ratio)} a scan, same {result.n_found:,} answers",
        "≥ 20 ×",
        result.ratio >= 20,
    )


# Curves


def front(points: Iterable[Point]) -> list[Point]:
    """Those that no other one beats in both recall and speed; the fastest first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (-point.speed, -point.recall)):
        if not kept or point.recall > kept[-1].recall:
            kept.append(point)
    return kept


def promising(points: list[Point], margin: float = 1.1) -> list[Point]:
    """Those that may be in the front if they are measured better: nobody as good is far faster."""
    return [
        point
        for point in points
        if not any(
            other.recall >= point.recall and other.speed > margin * point.speed for other in points
        )
    ]
