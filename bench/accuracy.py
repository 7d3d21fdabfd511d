"""Measures how accurate every hasher is by the paper's protocol, against the authors' code.

    python bench/accuracy.py [--sets sift,gist] [--methods DSH,ITQ] [--bits 32,64] [--seeds 3]
                             [--quick] [--records FILE.jsonl] [--markdown] [--json FILE]

The first 1,000 rows of a set are queries, the rest is the database (for SIFT, rows 1,000 to
99,999). A hasher learns from the database, and the database is ranked by Hamming distance. The
nearest 2% are the true neighbours. The figure is the tie-aware mean average precision, then the
mean over seeds.

Required: no mean is more than 0.02 below that of the authors' code (authors.py), and every line of
the table of contests holds on every set. Otherwise the exit code is 1.

With --records, every run is appended to that file as one line of JSON, and runs that are in the
file are not repeated: an interrupted run continues where it stopped. Records have the version of
densehash as a key: if a hasher changes between versions, start a new file.

The sets are sift.npy, gist.npy, glove.npy and fashion.npy, real arrays of shape (n, d), in the
folder named by DENSEHASH_DATA, or in ../shared/data beside the checkout.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from authors import AUTHORS, Value
from contest import needed_width
from data import data_folder
from hamming import machine
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import densehash
from densehash.paper.methods import METHODS
from densehash.paper.problem import Problem
from densehash.paper.records import Records
from densehash.paper.results import Results
from densehash.paper.runner import complete
from densehash.paper.runs import Run

SETS: dict[str, int | None] = {"sift": 100_000, "gist": None, "glove": None, "fashion": None}
"""How many rows of each set are used, including queries; None: all."""
N_QUERIES = 1000
QUICK_ROWS = 11_000

BITS = (16, 32, 48, 64, 96, 128)
TOLERANCE = 0.02

notes = Console(stderr=True, highlight=False)
say = partial(notes.print, markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Contest:
    """The mean of one method must exceed `factor` times that of another."""

    winner: str
    loser: str
    bits: tuple[int, ...]
    factor: float = 1.0

    def __str__(self) -> str:
        times = "" if self.factor == 1 else f"{self.factor:g} × "
        return f"{self.winner} > {times}{self.loser}"


CONTESTS = (
    Contest("Refined(DSH)", "ITQ", BITS[1:]),
    Contest("Refined(ITQ)", "ITQ", BITS),
    Contest("Refined(DSH)", "DSH", (64,), factor=1.3),
)


# Data


@cache
def problem_of(name: str, most_rows: int | None) -> Problem:
    folder = data_folder()
    if folder is None or not (folder / f"{name}.npy").exists():
        say(f"DENSEHASH_DATA must name a folder that has sift.npy and {name}.npy.")
        raise SystemExit(2)
    rows = np.array(np.load(folder / f"{name}.npy", mmap_mode="r")[:most_rows])
    return Problem(name, rows[N_QUERIES:], rows[:N_QUERIES])


# Runs


@dataclass(frozen=True)
class Case:
    """One method on one set at one code length; with any seed."""

    set: str
    most_rows: int | None
    run: Run

    @property
    def problem(self) -> Problem:
        return problem_of(self.set, self.most_rows)


def planned(asked: argparse.Namespace) -> list[Case]:
    return [
        Case(name, QUICK_ROWS if asked.quick else SETS[name], Run(method, n_bits))
        for name in asked.sets
        for n_bits in asked.bits
        for method in asked.methods
    ]


def measure_all(cases: list[Case], n_seeds: int, records: Records) -> None:
    """Run all cases with one seed before the next, so that an interrupted run has seen them all."""
    for seed in range(n_seeds):
        for problem in dict.fromkeys((case.set, case.most_rows) for case in cases):
            runs = [
                replace(case.run, seed=seed)
                for case in cases
                if (case.set, case.most_rows) == problem
            ]
            complete(problem_of(*problem), runs, records, verbose=True)


def refused(cases: list[Case], records: Records) -> Iterator[tuple[Case, str]]:
    for case in cases:
        found = Results(case.problem.identity, records).get(case.run)
        if found is not None and found.refused is not None:
            yield case, found.refused


def is_required(case: Case) -> bool:
    """Whether a requirement needs it; others may fail, as PCAH with more bits than features."""
    run = case.run
    in_contest = any(
        run.method in (contest.winner, contest.loser) and run.n_bits in contest.bits
        for contest in CONTESTS
    )
    return in_contest or authors_value(case) is not None


def authors_value(case: Case) -> Value | None:
    if case.most_rows != SETS[case.set]:  # the authors' figures are for whole sets
        return None
    return AUTHORS.get(case.set, {}).get(case.run.method, {}).get(case.run.n_bits)


# Results


@dataclass(frozen=True)
class Result:
    """A method on a set at one code length: the mean of its seeds, and what is required."""

    set: str
    method: str
    bits: int
    value: Value
    seeds: int
    authors: Value | None

    @property
    def met(self) -> bool | None:
        return None if self.authors is None else self.value.mean >= self.authors.mean - TOLERANCE


@dataclass(frozen=True)
class Outcome:
    """A contest on a set at one code length: the winner's mean divided by the loser's."""

    set: str
    contest: Contest
    bits: int
    ratio: float

    @property
    def met(self) -> bool:
        return self.ratio > self.contest.factor


def results_of(cases: Iterable[Case], n_seeds: int, records: Records) -> Iterator[Result]:
    for case in cases:
        results = Results(case.problem.identity, records)
        found = results.mean(case.run, n_seeds, lambda each: each.mean_average_precision)
        if found is not None:
            yield Result(
                case.set,
                case.run.method,
                case.run.n_bits,
                Value(found.mean, found.spread),
                found.n_seeds,
                authors_value(case),
            )


def outcomes_of(results: list[Result]) -> Iterator[Outcome]:
    means = {(each.set, each.method, each.bits): each.value.mean for each in results}
    for name in SETS:
        for contest in CONTESTS:
            for n_bits in contest.bits:
                winner = means.get((name, contest.winner, n_bits))
                loser = means.get((name, contest.loser, n_bits))
                if winner is not None and loser is not None:
                    yield Outcome(name, contest, n_bits, winner / loser)


# Tables


class Cell(NamedTuple):
    text: str
    failed: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table of text, which can be shown in several ways."""

    title: str
    heads: list[str]
    lines: list[list[Cell]]

    def as_rich(self) -> Table:
        table = Table(box=SIMPLE_HEAD)
        for head in self.heads:
            table.add_column(head, justify="right" if head.isdigit() else "left", no_wrap=True)
        for line in self.lines:
            table.add_row(
                *(f"[bold red]{cell.text}[/]" if cell.failed else cell.text for cell in line)
            )
        return table

    def as_markdown(self) -> str:
        rules = ["---:" if head.isdigit() else "---" for head in self.heads]
        lines = [
            [f"**{cell.text}**" if cell.failed else cell.text for cell in line]
            for line in self.lines
        ]
        body = "\n".join(f"| {' | '.join(line)} |" for line in [self.heads, rules, *lines])
        return f"{self.title}\n\n{body}\n"


def sheets(results: list[Result], outcomes: list[Outcome], cases: list[Case]) -> Iterator[Sheet]:
    bits = sorted({each.bits for each in results})
    heads = list(map(str, bits))
    for name, most_rows in dict.fromkeys((case.set, case.most_rows) for case in cases):
        mine = {(each.method, each.bits): each for each in results if each.set == name}
        methods = [method for method in METHODS if any((method, n) in mine for n in bits)]
        n, d = problem_of(name, most_rows).base.shape
        yield Sheet(
            f"{name}, {n:,} × {d}: mean average precision",
            ["bits", *heads],
            [
                [Cell(method), *(map_cell(mine.get((method, n))) for n in bits)]
                for method in methods
            ],
        )
    lines: dict[tuple[str, Contest], dict[int, Outcome]] = {}
    for outcome in outcomes:
        lines.setdefault((outcome.set, outcome.contest), {})[outcome.bits] = outcome
    if lines:
        yield Sheet(
            "Contests: one mean divided by the other",
            ["set", "required", *heads],
            [
                [Cell(name), Cell(str(contest)), *(ratio_cell(line.get(n)) for n in bits)]
                for (name, contest), line in lines.items()
            ],
        )


def map_cell(result: Result | None) -> Cell:
    if result is None:
        return Cell("")
    theirs = "" if result.authors is None else f" ({short(result.authors)})"
    return marked(f"{short(result.value)}{theirs}", result.met)


def ratio_cell(outcome: Outcome | None) -> Cell:
    return Cell("") if outcome is None else marked(f"{outcome.ratio:.3f} ×", outcome.met)


def marked(text: str, met: bool | None) -> Cell:
    return Cell(f"{text} NO", failed=True) if met is False else Cell(text)


def short(value: Value) -> str:
    spread = "" if value.sd is None else f" ± {fraction(value.sd)}"
    return f"{fraction(value.mean)}{spread}"


def fraction(number: float) -> str:
    return f"{number:.3f}".removeprefix("0")


def summary(results: list[Result], outcomes: list[Outcome]) -> str:
    judged = [each.met for each in results if each.met is not None]
    won = [each.met for each in outcomes]
    return (
        f"{sum(judged)} of {len(judged)} means are at most {TOLERANCE} below the authors' code; "
        f"{sum(won)} of {len(won)} contests are won; NO marks the others. "
        "In brackets: the authors' code. ±: standard deviation over seeds. "
        f"densehash {densehash.__version__}."
    )


# The command


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The accuracy of every hasher.")
    for option, known in (("sets", SETS), ("methods", METHODS), ("bits", BITS)):
        names = ",".join(map(str, known))
        parser.add_argument(f"--{option}", type=partial(some_of, known), help=f"some of {names}")
    parser.add_argument("--seeds", type=int, choices=range(1, 101), metavar="N", help="how many; 3")
    parser.add_argument(
        "--quick", action="store_true", help="10,000 rows a set; 32 and 64 bits, 1 seed unless told"
    )
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--json", metavar="FILE", help="write the results there; - prints them")
    parser.add_argument("--records", metavar="FILE", type=Path, help="keep every run there, go on")
    asked = parser.parse_args()
    asked.sets = asked.sets or list(SETS)
    asked.methods = asked.methods or list(METHODS)
    asked.bits = asked.bits or ([32, 64] if asked.quick else list(BITS))
    asked.seeds = asked.seeds or (1 if asked.quick else 3)
    return asked


def some_of(known: Iterable[str | int], text: str) -> list[str | int]:
    """Known names from a list with commas, in the order of ``known``."""
    named = [name.strip() for name in text.split(",")]
    of_known = {str(thing): thing for thing in known}
    for name in named:
        if name not in of_known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(of_known)}")
    return [thing for name, thing in of_known.items() if name in named]


def write_json(target: str, results: list[Result], outcomes: list[Outcome]) -> None:
    text = json.dumps(
        {
            **machine(),
            "results": [{**asdict(each), "met": each.met} for each in results],
            "contests": [
                {**asdict(each), "contest": str(each.contest), "met": each.met} for each in outcomes
            ],
        },
        indent=2,
    )
    if target == "-":
        sys.stdout.write(text + "\n")
    else:
        Path(target).write_text(text + "\n", encoding="utf-8")


def main() -> int:
    asked = options()
    cases = planned(asked)
    records = Records(asked.records)
    try:
        measure_all(cases, asked.seeds, records)
    except KeyboardInterrupt:
        say("Stopped." if asked.records is None else f"Stopped; {asked.records} has what was run.")
        return 130
    all_done = True
    for case, why in refused(cases, records):
        say(f"{case.set}, {case.run.n_bits} bits, {case.run.method}: {why}", style="red")
        all_done = all_done and not is_required(case)
    results = list(results_of(cases, asked.seeds, records))
    outcomes = list(outcomes_of(results))
    if asked.json:
        write_json(asked.json, results, outcomes)
    if asked.json != "-":
        for sheet in sheets(results, outcomes, cases):
            if asked.markdown:
                sys.stdout.write(sheet.as_markdown() + "\n")
            else:
                table = sheet.as_rich()
                wide = Console(width=needed_width(table), highlight=False)
                wide.print(sheet.title, table)
        sys.stdout.write(summary(results, outcomes) + "\n")
    verdicts = [each.met for each in results] + [each.met for each in outcomes]
    return 0 if all_done and False not in verdicts else 1


if __name__ == "__main__":
    sys.exit(main())
