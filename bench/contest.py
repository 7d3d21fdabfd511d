"""Contests: times several ways to do the same work, in turns, and makes a table of the results."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

Found = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Contestant:
    """One way to do the work of a row, or a part of it: times are compared per item."""

    name: str
    work: Callable[[], Found | None]  # returns what it found, for comparison, or None
    items: int  # pairs of a code and a query, or rows, in that work


@dataclass(frozen=True)
class Requirement:
    """The first contestant must be `least` times as fast as a peer; 0.5 allows twice its time."""

    peer: str
    least: float

    def __str__(self) -> str:
        if self.least < 1:
            return f"≤ {1 / self.least:g} × {self.peer}'s time"
        return f"{self.least:g} × {self.peer}"


@dataclass(frozen=True)
class Row:
    """One line of the table: densehash first, then the peers."""

    work: str
    n_bits: int
    n_threads: int
    contestants: list[Contestant]
    required: tuple[Requirement, ...] = ()
    n_calls: int = 1
    """How many calls the work takes, from which the time of one call follows."""


@dataclass(frozen=True)
class Result:
    """The result of a row."""

    row: Row
    ms: float
    """Milliseconds of densehash, for one call."""
    ns_per_item: dict[str, float]
    """Nanoseconds of every contestant, by name, densehash first."""

    @property
    def ratios(self) -> dict[str, float]:
        """How many times as long as densehash each peer took for an item."""
        ours, *peers = self.ns_per_item
        return {peer: self.ns_per_item[peer] / self.ns_per_item[ours] for peer in peers}

    @property
    def met(self) -> bool | None:
        """Whether every requirement is met; None if a peer for it is missing."""
        needs, ratios = self.row.required, self.ratios
        if any(need.peer in ratios and ratios[need.peer] < need.least for need in needs):
            return False
        return True if needs and all(need.peer in ratios for need in needs) else None

    def record(self) -> dict[str, object]:
        """The result as plain data, with everything on which it depends."""
        row = self.row
        return {
            "work": row.work,
            "n_bits": row.n_bits,
            "n_threads": row.n_threads,
            "ms": self.ms,
            "ns_per_item": self.ns_per_item,
            "ratios": self.ratios,
            "required": {need.peer: need.least for need in row.required},
            "met": self.met,
        }


def measure(
    row: Row,
    repetitions: int,
    budget_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Result:
    """Let the contestants take turns; the best time of each counts.

    A contestant whose runs have taken `budget_s` seconds sits out the remaining turns.
    """
    best = {each.name: float("inf") for each in row.contestants}
    spent = dict.fromkeys(best, 0.0)
    found: dict[str, Found | None] = {}
    for _ in range(repetitions):
        for each in row.contestants:
            if spent[each.name] < budget_s:
                start = clock()
                found[each.name] = each.work()
                took = clock() - start
                spent[each.name] += took
                best[each.name] = min(best[each.name], took)
    check_found(row, found)
    ours = row.contestants[0].name
    ns = {each.name: best[each.name] / each.items * 1e9 for each in row.contestants}
    return Result(row, best[ours] / row.n_calls * 1e3, ns)


def check_found(row: Row, found: dict[str, Found | None]) -> None:
    """Refuse a contest in which a peer found something else, as far as it searched."""
    ours = found[row.contestants[0].name]
    for name, theirs in found.items():
        if ours is not None and theirs is not None:
            asked = min(len(ours), len(theirs))
            if not np.array_equal(ours[:asked], theirs[:asked]):
                raise SystemExit(f"{row.work}, {row.n_bits} bits: {name} found other distances")


# Tables. Peers with their own column are shown as "times as fast"; others by name.

COLUMNS = ("work", "bits", "threads", "ms/call")
VERDICTS = {True: "yes", False: "NO", None: ""}


def cells(result: Result, peers: list[str]) -> list[str]:
    """One line of the table, as text."""
    row, ratios = result.row, result.ratios
    others = [multiple(name, ratio) for name, ratio in ratios.items() if name not in peers]
    return [
        row.work,
        str(row.n_bits),
        str(row.n_threads),
        f"{result.ms:.4g}",
        rounded(next(iter(result.ns_per_item.values()))),
        *(f"{ratios[peer]:.3g} ×" if peer in ratios else "" for peer in peers),
        ", ".join(others),
        ", ".join(map(str, row.required)),
        VERDICTS[result.met],
    ]


def rounded(number: float) -> str:
    return f"{number:.3f}" if number < 100 else f"{number:.0f}"


def multiple(peer: str, ratio: float) -> str:
    if ratio < 1:
        return f"{1 / ratio:.3g} × {peer}'s time"
    return f"{ratio:.3g} × {peer}"


def headings(peers: list[str], item: str) -> list[str]:
    return [*COLUMNS, f"ns/{item}", *peers, "against", "required", "met"]


def is_number(heading: str, peers: list[str]) -> bool:
    return heading in (*COLUMNS[1:], *peers) or heading.startswith("ns/")


def as_table(results: list[Result], peers: list[str], title: str, caption: str, item: str) -> Table:
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD)
    for heading in headings(peers, item):
        right = is_number(heading, peers)
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for result in results:
        style = "bold red" if result.met is False else None
        table.add_row(*cells(result, peers), style=style)
    return table


def as_markdown(
    results: list[Result], peers: list[str], title: str, caption: str, item: str
) -> str:
    heads = headings(peers, item)
    rules = ["---:" if is_number(heading, peers) else "---" for heading in heads]
    lines = [heads, rules, *(cells(result, peers) for result in results)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{title}\n\n{table}\n\n{caption}"


def needed_width(table: Table) -> int:
    """The width that a console needs so that no column is cut, even if it is not a terminal."""
    wide = Console(width=1000)
    return max(Console().width, Measurement.get(wide, wide.options, table).maximum)
