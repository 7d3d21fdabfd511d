"""The paper's protocol on any vectors: what an index finds in them, and which codes suit them."""

from __future__ import annotations

import json
import shlex
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from densehash.checks import check_integer
from densehash.errors import InputError
from densehash.index import Index
from densehash.paper.figures import MEASURES, draw, slug
from densehash.paper.methods import METHODS
from densehash.paper.pages import facts, machines
from densehash.paper.problem import Problem
from densehash.paper.records import Records, pack_array, unpack_array
from densehash.paper.results import Measured, Results
from densehash.paper.runner import complete
from densehash.paper.runs import VERSION
from densehash.paper.studies import CANDIDATES, Plan, Study
from densehash.report import Column, Figure, Page, Section, Series, Table
from densehash.report.looks import ASYMMETRIC, ESTIMATES

__all__ = [
    "AMONG",
    "Built",
    "Comparison",
    "Line",
    "advice",
    "build_commands",
    "compare",
    "comparison_page",
    "comparison_table",
    "default_candidates",
    "ranking_table",
]

AMONG = (10, 20, 50, 100)
"""The numbers of candidates at which rankings are compared."""

_ENOUGH = 0.95  # share of the nearest rows, or of the best recall
_SEED = 0  # seed of the index, the same in the printed commands


@dataclass(frozen=True)
class Line:
    """Results of one method at one code length; means over seeds.

    Attributes
    ----------
    method : name of the method
    n_bits : length of its codes; for signs and peers, the bits of all that is kept of a row
    mean_average_precision : of the ranking by Hamming distance; signs and peers rank by their own
    recall : share of the k nearest rows that are among the candidates of this ranking
    asymmetric_recall : the same if candidates are ranked by the query's margins; None if the method
        is not a hasher
    estimated_recall : the same if candidates are ranked by estimates from the codes, which take 4
        more bytes a row; None if the method is not a hasher
    fit_seconds : time to learn
    encode_seconds : time to hash one row
    bytes_a_row : bytes of a code; for signs and peers, of all that is kept of a row
    """

    method: str
    n_bits: int
    mean_average_precision: float
    recall: float
    asymmetric_recall: float | None
    estimated_recall: float | None
    fit_seconds: float
    encode_seconds: float
    bytes_a_row: int


@dataclass(frozen=True)
class Built:
    """The index that ``Index.build`` makes from these rows, and what its search finds.

    Attributes
    ----------
    index : the index in words
    recall : the share of the k nearest rows that it found, with its default settings
    bytes_a_row : bytes that it keeps of a row, without the vector
    build_seconds : time to build it
    queries_a_second : speed of one call with all queries and all threads
    """

    index: str
    recall: float
    bytes_a_row: float
    build_seconds: float
    queries_a_second: float


@dataclass(frozen=True)
class Comparison:
    """The results of :func:`compare`.

    Attributes
    ----------
    built : what a whole index finds
    lines : the methods, by code length; for each length, the best recall first
    refused : why a method could not run, by its name and code length
    n_candidates : how many candidates were re-ranked
    k : how many of the nearest rows a query looks for
    results : all measurements
    """

    built: Built
    lines: tuple[Line, ...]
    refused: dict[str, str]
    n_candidates: int
    k: int
    results: Results


def default_candidates(n_rows: int) -> int:
    """A hundredth of the rows, but at least 50 and at most 1,000.

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
    """Build the index, run every method of a plan at every code length, and rank the results.

    Parameters
    ----------
    problem : vectors and queries
    plan : methods, bits, and the number of seeds
    records : earlier measurements, which are not run again; new ones are added
    n_candidates : how many candidates are re-ranked, k to n; default :func:`default_candidates`
    verbose : whether to show progress bars

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
    plan = replace(plan, estimates=True)
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
    built = _built(problem, records)
    return Comparison(built, tuple(lines), refused, n_candidates, problem.k, results)


def _built(problem: Problem, records: Records) -> Built:
    """Build an index with default settings, as users do, and search it."""
    key = {**problem.identity, "index": "Index.build", "seed": _SEED, "version": VERSION}
    found = records.get(key)
    if found is None:
        begun = time.perf_counter()
        index = Index.build(problem.base, metric=problem.metric, random_state=_SEED)
        built = time.perf_counter()
        names = index.search(problem.queries, problem.k).ids
        asked = time.perf_counter()
        hits = [np.isin(*both).sum() for both in zip(problem.near, names, strict=True)]
        found = {
            "index": str(index),
            "bytes": index.info()["bytes_a_row"],
            "seconds": {"build": built - begun, "search": asked - built},
            "hits": pack_array(np.array(hits)),
        }
        records.add(key, found)
    of_queries = unpack_array(found["hits"])
    return Built(
        found["index"],
        float(of_queries.mean() / problem.k),
        found["bytes"],
        found["seconds"]["build"],
        len(of_queries) / found["seconds"]["search"],
    )


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
        mean(lambda m: m.estimated_recall(n_candidates)) if method in METHODS else None,
        mean(MEASURES["fit"].of),
        mean(lambda m: m.encode_seconds),
        every[0].bytes_a_row,
    )


def advice(comparison: Comparison) -> list[str]:
    """Advice in sentences: what ``Index.build`` makes and finds, and which codes find most."""
    built, k = comparison.built, comparison.k
    found = f"{built.recall:.1%} of the {k} nearest"
    kept = f"{built.bytes_a_row:.0f} bytes a row beside the vectors"
    made = f"Index.build makes {built.index} of these rows."
    sentences = [f"{made} Its searches found {found}; it keeps {kept}."]
    if built.recall < _ENOUGH:
        sentences.append(
            "That is less than 95%: index.tune(queries, recall=0.95), or densehash tune, looks for "
            "settings that find more."
        )
    hashers = [line for line in comparison.lines if line.method in METHODS]
    if not hashers:
        return sentences
    best = max(hashers, key=lambda line: (line.recall, -line.n_bits))
    by_estimates = ""
    if best.estimated_recall is not None:
        by_estimates = (
            f", and {best.estimated_recall:.1%} by estimates, {best.bytes_a_row + 4} bytes a row"
        )
    sentences.append(
        f"Of codes alone, {best.method} at {best.n_bits} bits has most of them among "
        f"{comparison.n_candidates:,} candidates: {best.recall:.1%} by Hamming distance, "
        f"{best.bytes_a_row} bytes a row{by_estimates}."
    )
    nearly = [line for line in hashers if line.recall >= _ENOUGH * best.recall]
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
    return sentences


def _built_table(comparison: Comparison) -> Table:
    built = comparison.built
    return Table(
        "index",
        "The index that Index.build makes",
        (
            Column("index"),
            Column(f"recall@{comparison.k}", 3),
            Column("bytes a row", 0),
            Column("build, s", 1),
            Column("queries a second", 0),
        ),
        ((built.index, built.recall, built.bytes_a_row, built.build_seconds,
          built.queries_a_second),),
        "With its own settings, all queries in one call; bytes without vectors.",
    )  # fmt: skip


def comparison_table(comparison: Comparison) -> Table:
    """The ranked table: one line for each method and code length."""
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
                line.estimated_recall,
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
            Column("estimates", 3),
            Column("fit, s", 2),
            Column("encode a row, µs", 2),
            Column("bytes a row", 0),
        ),
        tuple(rows),
        f"{recall}: the share of the {comparison.k} nearest among the {comparison.n_candidates:,} "
        "nearest codes, which exact re-ranking then finds; asymmetric: candidates ranked by the "
        "query's margins; estimates: by distances estimated from codes, for 4 bytes more a row. "
        "Signs and peers rank by their own estimates, and have all they keep in these bytes.",
    )


def ranking_table(comparison: Comparison, plan: Plan) -> Table:
    """Recall among few candidates, by bytes a row: rankings of the best codes, signs and peers."""
    n_rows = comparison.results.identity["rows"]
    among = [n for n in AMONG if comparison.k <= n <= n_rows]
    found = [
        (bytes_a_row, [recall(n) for n in among], name, n_bits)
        for n_bits in plan.bits
        for name, bytes_a_row, recall in _rankings(comparison, plan, n_bits)
    ]
    found.sort(key=lambda one: (one[0], [-share for share in one[1]]))
    rows: list[tuple[str | float, ...]] = [
        (bytes_a_row, name, n_bits, *shares) for bytes_a_row, shares, name, n_bits in found
    ]
    return Table(
        "bytes",
        f"Recall@{comparison.k} among N candidates, by bytes a row",
        (
            Column("bytes a row", 0),
            Column("ranked by"),
            Column("bits", 0),
            *(Column(f"N = {n}", 3) for n in among),
        ),
        tuple(rows),
        "All rows are ranked, in one group. Bytes are all that is kept of a row: of codes by "
        "Hamming distance or margins, their bits; by estimates, two factors of 2 bytes more; of "
        "signs, 4 bytes of their bytes are factors; of RaBitQ, 8; PQ and OPQ have none.",
    )


_Recall = Callable[[int], float]


def _rankings(comparison: Comparison, plan: Plan, n_bits: int) -> list[tuple[str, int, _Recall]]:
    """At one code length: the best hasher ranked in three ways, then signs and peers."""
    plan = replace(plan, estimates=True)
    lines = [line for line in comparison.lines if line.n_bits == n_bits]
    hashers = [line for line in lines if line.method in METHODS]
    found: list[tuple[str, int, _Recall]] = []

    def of(method: str, recall: Callable[[Measured, int], float]) -> _Recall:
        every = list(comparison.results.seeds(plan.run(method, n_bits), plan.n_seeds))
        return lambda n: statistics.mean(recall(measured, n) for measured in every)

    if hashers:
        best = max(hashers, key=lambda line: line.recall)
        name, size = best.method, best.bytes_a_row
        found = [
            (name, size, of(name, Measured.recall)),
            (name + ASYMMETRIC, size, of(name, Measured.asymmetric_recall)),
            (name + ESTIMATES, size + 4, of(name, Measured.estimated_recall)),
        ]
    return found + [
        (line.method, line.bytes_a_row, of(line.method, Measured.recall))
        for line in lines
        if line.method not in METHODS
    ]


def build_commands(comparison: Comparison, vectors: str, key: str | None = None) -> list[str]:
    """Commands that build the measured index: for Python and, if the vectors are a file, a shell.

    Parameters
    ----------
    comparison : what :func:`compare` returned
    vectors : a file, or the name of a set
    key : name of an array or column inside the file
    """
    metric = comparison.results.identity["metric"]
    is_file = Path(vectors).exists()
    of_key = "" if key is None else f", key={json.dumps(key)}"
    rows = f"open_vectors({json.dumps(vectors)}{of_key})"
    if not is_file:
        rows = f"load({json.dumps(vectors)}).base"
    of_metric = "" if metric == "l2" else f'metric="{metric}", '
    commands = [
        f"densehash.Index.build(densehash.datasets.{rows}, {of_metric}random_state={_SEED})"
    ]
    if is_file:
        words = ["densehash", "build", vectors, "-o", f"{Path(vectors).stem}.dh"]
        words += [] if metric == "l2" else ["--metric", metric]
        words += [] if key is None else ["--key", key]
        commands.insert(0, shlex.join(words))
    return commands


def comparison_page(
    comparison: Comparison, plan: Plan, command: str, commands: Sequence[str] = ()
) -> Page:
    """The comparison as a report.

    Parameters
    ----------
    comparison : what :func:`compare` returned
    plan : the plan that it ran
    command : the command that made the page
    commands : commands for readers to copy, from :func:`build_commands`
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
    among = [n for n in CANDIDATES if comparison.k <= n <= identity["rows"]]
    by_bytes = tuple(
        Figure(
            f"bytes-{slug(str(identity['set']))}-{n_bits}",
            f"{n_bits} bits: three rankings of the best codes, signs and peers",
            "candidates",
            f"recall of the {comparison.k} nearest",
            tuple(
                Series(name, tuple(among), tuple(recall(n) for n in among))
                for name, _, recall in _rankings(comparison, plan, n_bits)
            ),
            log_x=True,
        )
        for n_bits in plan.bits
        if _rankings(comparison, plan, n_bits)
    )
    for study in studies:
        figure = draw(study, results, replace(plan, estimates=True))
        if figure is not None:
            name = f"{figure.name}-{study.bits[0]}" if study.x == "candidates" else figure.name
            figures.append(replace(figure, name=name))
    first, *others = advice(comparison)
    sections = [
        Section("What to take", (_built_table(comparison),), "\n\n".join([first, *commands])),
        Section("Rankings, by bytes a row", (ranking_table(comparison, plan), *by_bytes)),
        Section("Codes", (comparison_table(comparison),), " ".join(others)),
        Section("The figures", tuple(figures)),
    ]
    return Page(
        f"Which hasher for {identity['set']}",
        tuple(sections),
        f"{identity['rows']:,} × {identity['features']} rows, {identity['queries']:,} queries, "
        f"metric {identity['metric']}. Candidates are re-ranked by their vectors.",
        {
            **{f"left out: {name}": why for name, why in comparison.refused.items()},
            **facts(plan, command, machines([results], plan)),
        },
    )
