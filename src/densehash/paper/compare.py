"""The paper's protocol on anybody's vectors: which method, at how many bits, at what cost."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

from densehash.checks import check_integer
from densehash.errors import InputError
from densehash.paper.figures import MEASURES, draw
from densehash.paper.methods import METHODS
from densehash.paper.pages import facts, machines
from densehash.paper.problem import Problem
from densehash.paper.records import Records
from densehash.paper.results import Measured, Results
from densehash.paper.runner import complete
from densehash.paper.studies import CANDIDATES, Plan, Study
from densehash.report import Column, Figure, Page, Section, Table

__all__ = [
    "Comparison",
    "Line",
    "advice",
    "compare",
    "comparison_page",
    "comparison_table",
    "default_candidates",
]

_NEARLY = 0.95  # of the best recall is nearly as good


@dataclass(frozen=True)
class Line:
    """One method at one code length; means over seeds.

    Attributes
    ----------
    method, n_bits : which
    mean_average_precision : of the ranking by Hamming distance
    recall : of the k nearest among the candidates, by Hamming distance
    asymmetric_recall : the same, candidates ranked by the query's margins; None of a peer
    fit_seconds : of learning
    encode_seconds : of hashing one row
    bytes_a_row : of a code
    """

    method: str
    n_bits: int
    mean_average_precision: float
    recall: float
    asymmetric_recall: float | None
    fit_seconds: float
    encode_seconds: float
    bytes_a_row: int


@dataclass(frozen=True)
class Comparison:
    """What came out.

    Attributes
    ----------
    lines : by code length; the best recall first within each
    refused : why a method could not be run, by its name and length
    n_candidates : how many were re-ranked
    k : how many nearest were to be found
    results : all records
    """

    lines: tuple[Line, ...]
    refused: dict[str, str]
    n_candidates: int
    k: int
    results: Results


def default_candidates(n_rows: int) -> int:
    """A hundredth of the rows, from 50 to 1,000.

    Examples
    --------
    >>> default_candidates(1_000_000), default_candidates(1_697)
    (1000, 50)
    """
    return min(max(n_rows // 100, 50), 1000, n_rows)


def compare(
    problem: Problem,
    plan: Plan,
    records: Records,
    *,
    n_candidates: int | None = None,
    verbose: bool = False,
) -> Comparison:
    """Run every method of a plan at every length, and rank what came out.

    Parameters
    ----------
    problem : vectors and queries
    plan : methods, bits, and the number of seeds
    records : what is there is not run again
    n_candidates : how many are re-ranked, k to n; None is :func:`default_candidates`
    verbose : whether to show bars

    Examples
    --------
    >>> from densehash.datasets import load
    >>> problem = Problem.of(load("digits"), n_queries=100)
    >>> found = compare(problem, Plan(("LSH", "ITQ"), (32,), n_seeds=1), Records(None))
    >>> [(line.method, line.bytes_a_row) for line in found.lines]
    [('ITQ', 4), ('LSH', 4)]
    """
    n = len(problem.base)
    if n_candidates is None:
        n_candidates = default_candidates(n)
    check_integer(n_candidates, "candidates", problem.k, n)
    runs = [
        replace(plan.run(method, n_bits), seed=seed)
        for seed in range(plan.n_seeds)
        for n_bits in plan.bits
        for method in plan.methods
    ]
    complete(problem, runs, records, verbose=verbose)
    results = Results(problem.identity, records)
    lines, refused = [], {}
    for n_bits in sorted(plan.bits):
        found = []
        for method in plan.methods:
            line = _line(results, plan, method, n_bits, n_candidates)
            if line is not None:
                found.append(line)
            else:
                measured = results.get(plan.run(method, n_bits))
                refused[f"{method}, {n_bits} bits"] = (measured and measured.refused) or ""
        lines += sorted(found, key=lambda line: -line.recall)
    if not lines:
        reasons = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise InputError(f"no method could be run on {problem.name}: {reasons}")
    return Comparison(tuple(lines), refused, n_candidates, problem.k, results)


def _line(results: Results, plan: Plan, method: str, n_bits: int, n_candidates: int) -> Line | None:
    every = list(results.seeds(plan.run(method, n_bits), plan.n_seeds))
    if not every:
        return None

    def mean(measure: Callable[[Measured], float]) -> float:
        return statistics.mean(map(measure, every))

    return Line(
        method,
        n_bits,
        mean(MEASURES["map"].of),
        mean(lambda m: m.recall(n_candidates)),
        mean(lambda m: m.asymmetric_recall(n_candidates)) if method in METHODS else None,
        mean(MEASURES["fit"].of),
        mean(lambda m: m.encode_seconds),
        every[0].bytes_a_row,
    )


def advice(comparison: Comparison) -> list[str]:
    """What the figures say, in sentences.

    Examples
    --------
    >>> best = Line("ITQ", 64, 0.5, 0.90, 0.95, 3.0, 1e-6, 8)
    >>> fast = Line("DSH", 64, 0.4, 0.88, 0.90, 0.5, 1e-6, 8)
    >>> found = Comparison((best, fast), {}, 100, 10, None)
    >>> for sentence in advice(found):
    ...     print(sentence)
    ITQ at 64 bits finds most: 90.0% of the 10 nearest among 100 candidates, 8 bytes a row.
    DSH finds nearly as much (88.0%) and learns in 0.5 s instead of 3 s.
    Ranking candidates by the query's margins instead of its bits would raise 90.0% to 95.0%.
    """
    best = max(comparison.lines, key=lambda line: (line.recall, -line.n_bits))
    found = f"{best.recall:.1%} of the {comparison.k} nearest"
    among = f"among {comparison.n_candidates:,} candidates, {best.bytes_a_row} bytes a row"
    sentences = [f"{best.method} at {best.n_bits} bits finds most: {found} {among}."]
    nearly = [line for line in comparison.lines if line.recall >= _NEARLY * best.recall]
    fastest = min(
        (line for line in nearly if line.n_bits == best.n_bits), key=lambda line: line.fit_seconds
    )
    if best.fit_seconds > 2 * fastest.fit_seconds:
        sentences.append(
            f"{fastest.method} finds nearly as much ({fastest.recall:.1%}) and learns in "
            f"{fastest.fit_seconds:.2g} s instead of {best.fit_seconds:.2g} s."
        )
    least = min(nearly, key=lambda line: (line.n_bits, -line.recall))
    if least.n_bits < best.n_bits:
        sentences.append(
            f"{least.method} finds nearly as much with {least.n_bits} bits ({least.recall:.1%})."
        )
    if best.asymmetric_recall is not None and best.asymmetric_recall > best.recall + 0.01:
        sentences.append(
            "Ranking candidates by the query's margins instead of its bits would raise "
            f"{best.recall:.1%} to {best.asymmetric_recall:.1%}."
        )
    if best.recall < 0.5:
        sentences.append(
            "No method finds half of them: take more bits, or more candidates (--candidates)."
        )
    return sentences


def comparison_table(comparison: Comparison) -> Table:
    """The ranked table: one line a method and length.

    Examples
    --------
    >>> from densehash.datasets import load
    >>> problem = Problem.of(load("digits"), n_queries=100)
    >>> found = compare(problem, Plan(("LSH", "ITQ"), (32,), n_seeds=1), Records(None))
    >>> [row[:3] for row in comparison_table(found).rows]
    [(32, 1, 'ITQ'), (32, 2, 'LSH')]
    """
    rank, rows = 0, []
    for at, line in enumerate(comparison.lines):
        first = at == 0 or comparison.lines[at - 1].n_bits != line.n_bits
        rank = 1 if first else rank + 1
        rows.append(
            (
                line.n_bits,
                rank,
                line.method,
                line.mean_average_precision,
                line.recall,
                line.asymmetric_recall,
                line.fit_seconds,
                1e6 * line.encode_seconds,
                line.bytes_a_row,
            )
        )
    identity = comparison.results.identity
    recall = f"recall@{comparison.k} at {comparison.n_candidates:,}"
    return Table(
        "ranking",
        f"{identity['set']}, {identity['rows']:,} × {identity['features']}, "
        f"{identity['queries']:,} queries, {identity['metric']}",
        (
            Column("bits", 0),
            Column("rank", 0),
            Column("method"),
            Column("MAP", 3),
            Column(recall, 3),
            Column("asymmetric", 3),
            Column("fit, s", 2),
            Column("encode a row, µs", 2),
            Column("bytes a row", 0),
        ),
        tuple(rows),
        f"{recall}: the share of the {comparison.k} nearest among the {comparison.n_candidates:,} "
        "nearest codes, which exact re-ranking then finds; asymmetric: candidates ranked by the "
        "query's margins.",
    )


def comparison_page(comparison: Comparison, plan: Plan, command: str) -> Page:
    """The comparison as a report.

    Examples
    --------
    >>> from densehash.datasets import load
    >>> problem, plan = Problem.of(load("digits"), n_queries=100), Plan(("ITQ",), (32,), n_seeds=1)
    >>> found = compare(problem, plan, Records(None))
    >>> comparison_page(found, plan, "densehash compare digits").title
    'Which hasher for digits'
    """
    results = comparison.results
    identity = results.identity
    studies = [
        Study("recall", "", f"Recall of the {comparison.k} nearest, {n_bits} bits", "candidates",
              "recall", plan.methods, (n_bits,), CANDIDATES)
        for n_bits in plan.bits
    ]  # fmt: skip
    if len(plan.bits) > 1:
        studies += [
            Study("map", "", "MAP against code length", "bits", "map", plan.methods, plan.bits),
            Study("fit", "", "Learning time", "bits", "fit", plan.methods, plan.bits),
            Study("query", "", "Hashing one query", "bits", "query", plan.methods, plan.bits),
        ]
    figures: list[Figure] = []
    for study in studies:
        figure = draw(study, results, plan)
        if figure is not None:
            name = f"{figure.name}-{study.bits[0]}" if study.x == "candidates" else figure.name
            figures.append(replace(figure, name=name))
    sections = [
        Section("The ranking", (comparison_table(comparison),), " ".join(advice(comparison))),
        Section("The figures", tuple(figures)),
    ]
    return Page(
        f"Which hasher for {identity['set']}",
        tuple(sections),
        f"{identity['rows']:,} × {identity['features']} rows, {identity['queries']:,} queries, "
        f"metric {identity['metric']}. Hamming candidates are re-ranked by their vectors.",
        {
            **{f"left out: {name}": why for name, why in comparison.refused.items()},
            **facts(plan, command, machines([results], plan)),
        },
    )
