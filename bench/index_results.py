"""What the benchmark of the index has measured, and what was required."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field

from hashers import Fact
from index_child import Cost
from index_multi import RADIUS, MultiResult
from index_peers import BUILD_THREADS, CONTESTANTS, Contestant, K, Setting
from index_sets import LEAST_DEFAULT_RECALL, TARGETS, VectorSet

OURS = "densehash"
AIM = 1.5  # times as fast as the fastest other
OVERHEAD_US = 60  # the most for one query on a small index


@dataclass(frozen=True)
class Demand:
    """A requirement on a set: the figure that counts, and what it comes from."""

    what: str
    figure: str
    details: str
    required: str
    met: bool

    @property
    def fact(self) -> Fact:
        return Fact(self.what, f"{self.figure}: {self.details}", self.required, self.met)


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
    """One query per call: microseconds, and the recall of these calls."""

    median: float
    p99: float
    recall: float


@dataclass(frozen=True)
class Measured:
    """All measurements of one contestant, outside of races."""

    contestant: Contestant
    cost: Cost
    points: list[Point]

    def fastest(self, target: float) -> Point | None:
        """The fastest setting that has this recall."""
        good = [point for point in self.points if point.recall >= target]
        return max(good, key=lambda point: point.speed, default=None)

    @property
    def default(self) -> Point | None:
        """The result without a setting."""
        return next((point for point in self.points if not point.setting), None)

    @property
    def bytes_without_vectors(self) -> float:
        """Resident bytes for each row, without its vector."""
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
    """All that have a recall, each with its fastest setting, in turns; by name."""

    target: float
    points: dict[str, Point]
    one_query: dict[str, OneQuery]

    @property
    def best_other(self) -> str | None:
        """The name of the fastest one that is not ours."""
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
    """Results of one set, by the names of contestants; `absent` says why one did not take part."""

    vectors: VectorSet
    n_rows: int
    n_queries: int
    measured: dict[str, Measured] = field(default_factory=dict)
    races: list[Race] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)

    def demands(self) -> Iterator[Demand]:
        """The requirements whose contestants took part."""
        required = self.vectors.required
        for race in self.races:
            yield from duel(race, OURS, "hnsw32", required.hnsw[race.target])
        for race in self.races:
            if race.best_other:
                least = required.others[race.target]
                yield from duel(race, OURS, race.best_other, least, fastest=True)
        for race in self.races[:1]:
            yield from one_query(race, required.one_query)
        ours, peers = self.measured.get(OURS), self.measured
        if ours is not None:
            if ours.default:
                yield default_recall(ours.default)
            if "hnsw32-40" in peers:
                yield build(ours, peers["hnsw32-40"], required.build_hnsw)
            if "symphony" in peers:
                yield build(ours, peers["symphony"], required.build_symphony)
            yield memory(ours, required.bytes_a_row)
            yield opening(ours.cost)
        for race in self.races[:1]:  # the requirements from before the sketch of signs
            yield from duel(race, "densehash-uint8", "codes", 1)
            yield from duel(race, "flat", "sklearn", 20)

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
            "demands": [asdict(demand) for demand in self.demands()],
        }


@dataclass
class Results:
    """Results of a whole run: sets by name, and what needs no peers."""

    sets: dict[str, SetResults] = field(default_factory=dict)
    multi: list[MultiResult] = field(default_factory=list)
    overhead_us: float | None = None

    def facts(self) -> Iterator[Fact]:
        """The facts that belong to no set."""
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


def duel(
    race: Race, ours: str, peer: str, least: float, *, fastest: bool = False
) -> Iterator[Demand]:
    """Ours against a peer in a race, if both took part; `fastest`: it is the fastest other."""
    if ours in race.points and peer in race.points:
        speed, of_peer = race.points[ours].speed, race.points[peer].speed
        whom = "the fastest of all others" if fastest else title(peer)
        aim = f", aim {AIM:g} ×" if fastest and least < AIM else ""
        yield Demand(
            f"{title(ours)} against {whom}, recall@{K} ≥ {race.target:g}",
            times(speed / of_peer),
            f"{speed:,.0f} queries a second; {title(peer)} {of_peer:,.0f}",
            f"≥ {least:g} ×{aim}",
            speed >= least * of_peer,
        )


def one_query(race: Race, least: float) -> Iterator[Demand]:
    one = race.one_query
    if OURS in one and "hnsw32" in one:
        ours, peer = one[OURS].median, one["hnsw32"].median
        yield Demand(
            f"{title(OURS)} against {title('hnsw32')}, one query a call, "
            f"recall@{K} ≥ {race.target:g}",
            times(peer / ours),
            f"median {ours:.0f} µs; {title('hnsw32')} {peer:.0f} µs",
            f"≥ {least:g} ×",
            peer >= least * ours,
        )


def default_recall(point: Point) -> Demand:
    return Demand(
        f"{title(OURS)}: recall@{K} at default settings",
        f"{point.recall:.4f}",
        f"{point.speed:,.0f} queries a second",
        f"≥ {LEAST_DEFAULT_RECALL:g}",
        point.recall >= LEAST_DEFAULT_RECALL,
    )


def build(ours: Measured, peer: Measured, least: float) -> Demand:
    ours_s, peer_s = ours.cost.build_s, peer.cost.build_s
    return Demand(
        f"{title(OURS)}: build, against {peer.contestant.title}",
        times(peer_s / ours_s),
        f"{ours_s:.2f} s; {peer.contestant.title} {peer_s:.1f} s, {BUILD_THREADS} threads",
        f"≥ {least:g} ×",
        peer_s >= least * ours_s,
    )


def memory(ours: Measured, most: float) -> Demand:
    size = ours.bytes_without_vectors
    return Demand(
        f"{title(OURS)}: bytes a row without vectors, ids included",
        f"{size:.1f}",
        f"{ours.cost.resident / ours.cost.n_rows:.1f} with vectors",
        f"≤ {most:g}",
        size <= most,
    )


def opening(cost: Cost) -> Demand:
    took = 1e3 * (cost.open_s or 0)
    return Demand(
        f"{title(OURS)}: opening", f"{took:.1f} ms", f"{cost.n_rows:,} rows", "< 50 ms", took < 50
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
    """The points that no other one beats in both recall and speed; the fastest first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (-point.speed, -point.recall)):
        if not kept or point.recall > kept[-1].recall:
            kept.append(point)
    return kept
