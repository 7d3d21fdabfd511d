"""What the benchmark of the index has measured, and what it had to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field

from hashers import Fact
from index_child import Cost
from index_multi import RADIUS, MultiResult
from index_peers import BUILD_THREADS, CONTESTANTS, Contestant, K, Setting
from index_sets import LEAST_DEFAULT_RECALL, TARGETS, VectorSet

OURS = "densehash"
OVERHEAD_US = 60  # at most, of one query on a small index


@dataclass(frozen=True)
class Point:
    """How a contestant did with one setting: recall@10, and queries a second."""

    setting: Setting
    recall: float
    speed: float

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:g}" for name, value in self.setting.items()) or "default"


@dataclass(frozen=True)
class OneQuery:
    """One query a call: microseconds, and the recall of these calls."""

    median: float
    p99: float
    recall: float


@dataclass(frozen=True)
class Measured:
    """All about one contestant, alone."""

    contestant: Contestant
    cost: Cost
    points: list[Point]

    def fastest(self, target: float) -> Point | None:
        """The fastest setting with that recall."""
        good = [point for point in self.points if point.recall >= target]
        return max(good, key=lambda point: point.speed, default=None)

    @property
    def default(self) -> Point | None:
        """How it did without a setting."""
        return next((point for point in self.points if not point.setting), None)

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
            "bytes_without_vectors": self.bytes_without_vectors,
            "points": [asdict(point) for point in self.points],
        }


@dataclass(frozen=True)
class Race:
    """All who have a recall, each with its fastest setting, taking turns; by name."""

    target: float
    points: dict[str, Point]
    one_query: dict[str, OneQuery]

    @property
    def best_other(self) -> str | None:
        """The fastest one that is not ours."""
        return max(
            (name for name in self.points if not CONTESTANTS[name].is_ours),
            key=lambda name: self.points[name].speed,
            default=None,
        )

    def record(self) -> dict[str, object]:
        """As plain data."""
        return {
            "recall": self.target,
            "contestants": {
                name: {**asdict(point), "one_query_us": asdict(self.one_query[name])}
                for name, point in self.points.items()
            },
        }


@dataclass
class SetResults:
    """Of one set, by the names of contestants; `absent` says why one did not take part."""

    vectors: VectorSet
    n_rows: int
    n_queries: int
    measured: dict[str, Measured] = field(default_factory=dict)
    races: list[Race] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)

    def facts(self) -> Iterator[Fact]:
        """What was asked for, as far as those who can tell took part."""
        required = self.vectors.required
        for race in self.races:
            yield from duel_fact(race, OURS, "hnsw32", required.hnsw[race.target])
        for race in self.races:
            if race.best_other:
                least = required.others[race.target]
                yield from duel_fact(race, OURS, race.best_other, least, aim=1.5, fastest=True)
        for race in self.races[:1]:
            yield from one_query_fact(race, required.one_query)
            yield from duel_fact(race, "densehash-uint8", "codes", 1)
            yield from duel_fact(race, "flat", "sklearn", 20)
        ours = self.measured.get(OURS)
        if ours is None:
            return
        if ours.default:
            yield default_fact(ours.default)
        for peer, least in (
            ("hnsw32-40", required.build_hnsw),
            ("symphony", required.build_symphony),
        ):
            if peer in self.measured:
                yield build_fact(ours, self.measured[peer], least)
        yield memory_fact(ours, required.bytes_a_row)
        yield open_fact(ours.cost)

    def record(self) -> dict[str, object]:
        """As plain data."""
        return {
            "set": self.vectors.name,
            "metric": self.vectors.metric,
            "rows": self.n_rows,
            "queries": self.n_queries,
            "contestants": [each.record() for each in self.measured.values()],
            "races": [race.record() for race in self.races],
            "absent": self.absent,
            "facts": [asdict(fact) for fact in self.facts()],
        }


@dataclass
class Results:
    """Of a whole run: sets by name, and what needs no peers."""

    sets: dict[str, SetResults] = field(default_factory=dict)
    multi: list[MultiResult] = field(default_factory=list)
    overhead_us: float | None = None

    def facts(self) -> Iterator[Fact]:
        """Those of no set."""
        if self.overhead_us is not None:
            yield Fact(
                "densehash: one query on an index of 1,000 rows, median",
                f"{self.overhead_us:.1f} µs",
                f"≤ {OVERHEAD_US} µs",
                self.overhead_us <= OVERHEAD_US,
            )
        yield from map(multi_fact, self.multi)

    def record(self) -> dict[str, object]:
        """As plain data."""
        return {
            "k": K,
            "recalls": TARGETS,
            "sets": [each.record() for each in self.sets.values()],
            "overhead_us": self.overhead_us,
            "multi": [{**asdict(each), "ratio": each.ratio} for each in self.multi],
            "facts": [asdict(fact) for fact in self.facts()],
        }


def title(name: str) -> str:
    return CONTESTANTS[name].title


def times(ratio: float) -> str:
    return f"{ratio:,.0f} ×" if ratio >= 100 else f"{ratio:.3g} ×"


def duel_fact(
    race: Race,
    ours: str,
    peer: str,
    least: float,
    *,
    aim: float | None = None,
    fastest: bool = False,
) -> Iterator[Fact]:
    """Ours against a peer in a race, if both took part."""
    if ours in race.points and peer in race.points:
        speed, of_peer = race.points[ours].speed, race.points[peer].speed
        ratio = speed / of_peer
        whom = "the fastest of all others" if fastest else title(peer)
        hint = f", aim {aim:g} ×" if aim and aim > least else ""
        yield Fact(
            f"{title(ours)}: queries a second at recall@{K} ≥ {race.target:g}, against {whom}",
            f"{speed:,.0f} = {times(ratio)} {title(peer)}'s {of_peer:,.0f}",
            f"≥ {least:g} ×{hint}",
            ratio >= least,
        )


def one_query_fact(race: Race, least: float) -> Iterator[Fact]:
    one = race.one_query
    if OURS in one and "hnsw32" in one:
        ours, peer = one[OURS].median, one["hnsw32"].median
        yield Fact(
            f"{title(OURS)}: one query a call at recall@{K} ≥ {race.target:g}, median",
            f"{ours:.0f} µs; {title('hnsw32')} {peer:.0f} µs = {times(peer / ours)}",
            f"≥ {least:g} ×",
            peer / ours >= least,
        )


def default_fact(point: Point) -> Fact:
    return Fact(
        f"{title(OURS)}: recall@{K} at default settings",
        f"{point.recall:.4f}, {point.speed:,.0f} queries a second",
        f"≥ {LEAST_DEFAULT_RECALL:g}",
        point.recall >= LEAST_DEFAULT_RECALL,
    )


def build_fact(ours: Measured, peer: Measured, least: float) -> Fact:
    ours_s, peer_s = ours.cost.build_s, peer.cost.build_s
    ratio = peer_s / ours_s
    return Fact(
        f"{ours.contestant.title}: build from vectors, {BUILD_THREADS} threads",
        f"{ours_s:.2f} s; {peer.contestant.title} {peer_s:.1f} s = {times(ratio)}",
        f"≥ {least:g} ×",
        ratio >= least,
    )


def memory_fact(ours: Measured, most: float) -> Fact:
    size = ours.bytes_without_vectors
    return Fact(
        f"{ours.contestant.title}: memory without vectors, ids included",
        f"{size:.1f} bytes a row",
        f"≤ {most:g}",
        size <= most,
    )


def open_fact(cost: Cost) -> Fact:
    took = 1e3 * (cost.open_s or 0)
    return Fact(
        f"{title(OURS)}: opening {cost.n_rows:,} rows", f"{took:.1f} ms", "< 50 ms", took < 50
    )


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
