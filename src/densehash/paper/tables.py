"""Tables of the paper, made from records, with the paper's own numbers beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from densehash.paper import published
from densehash.paper.figures import MEASURES, slug
from densehash.paper.methods import METHODS, PAPER
from densehash.paper.results import Measured, Results, Value
from densehash.paper.runs import Run
from densehash.paper.studies import STUDIES, Plan, Study, runs_of
from densehash.report import Column, Table

__all__ = [
    "beyond_table",
    "cost_table",
    "growth_exponent",
    "map_table",
    "nearest_published",
    "parameter_table",
    "times_table",
]

Cell = str | float | None
_Row = tuple[Cell, ...]


def map_table(results: Results, plan: Plan) -> Table:
    """Mean average precision of all hashers at all code lengths, on one set."""
    rows = []
    for method in plan.methods:
        if method not in METHODS:  # peers do not rank by Hamming distance
            continue
        values = [
            results.mean(plan.run(method, n_bits), plan.n_seeds, MEASURES["map"].of)
            for n_bits in plan.bits
        ]
        if any(values):
            spreads = [value.spread for value in values if value and value.spread is not None]
            rows.append((method, *map(_mean, values), max(spreads, default=None)))
    identity = results.identity
    return Table(
        f"map-{slug(identity['set'])}",
        f"{identity['set']}, {identity['rows']:,} × {identity['features']}: "
        "mean average precision by code length",
        (
            Column("method"),
            *(Column(f"{n_bits} bits", 3, "most") for n_bits in plan.bits),
            Column("±, at most", 3),
        ),
        tuple(rows),
        "Mean over seeds; ± is the largest standard deviation in the line. The nearest "
        f"{100 * identity['fraction']:.3g}% of the database are true; ties count as their "
        "expectation.",
    )


def nearest_published(n_features: int) -> str:
    """The set of the paper with the nearest number of features.

    Examples
    --------
    >>> nearest_published(100), nearest_published(768)
    ('SIFT1M', 'GIST1M')
    """
    return min(published.FEATURES, key=lambda name: abs(published.FEATURES[name] - n_features))


def times_table(results: Results, plan: Plan) -> Table | None:
    """Tables 1 to 3 on one set: training and test times, with those of the paper's nearest set."""
    bits = [n_bits for n_bits in published.TABLE_BITS if n_bits in plan.bits]
    theirs = nearest_published(results.identity["features"])
    rows: list[_Row] = []
    for method in plan.methods:
        if method not in METHODS:
            continue
        runs = [plan.run(method, n_bits) for n_bits in bits]
        fits = [results.mean(run, plan.n_seeds, MEASURES["fit"].of) for run in runs]
        tests = [results.mean(run, plan.n_seeds, MEASURES["query"].of) for run in runs]
        if any(fits):
            rows.append((method, "here", *map(_mean, fits), *map(_mean, tests)))
    for method in PAPER:
        if method in plan.methods:
            times = published.TIMES[theirs][method]
            at = [published.TABLE_BITS.index(n_bits) for n_bits in bits]
            training = [times.training[i] for i in at]
            test = [round(1e6 * times.test[i], 1) for i in at]
            rows.append((method, f"{theirs}, in the paper", *training, *test))
    if not bits or not rows:
        return None
    name = results.identity["set"]
    return Table(
        f"tables-1-3-{slug(name)}",
        f"{name}: training and test time",
        (
            Column("method"),
            Column("measured"),
            *(Column(f"training, s, {n_bits} bits", 3) for n_bits in bits),
            *(Column(f"test, µs, {n_bits} bits", 2) for n_bits in bits),
        ),
        tuple(rows),
        f"Here: {results.identity['rows']:,} × {results.identity['features']} rows. In the paper: "
        f"a million rows of {published.FEATURES[theirs]} features, MATLAB, a machine of 2012. Test "
        "time is that of hashing one query, in a batch of all.",
    )


def parameter_table(
    name: str, every: list[Results], plan: Plan, theirs: Mapping[str, tuple[float, ...]]
) -> Table | None:
    """Table 4 or 5: training time of DSH against a parameter, on all sets and on the paper's."""
    study = _study(name)
    rows: list[_Row] = []
    for results in every:
        runs = [run for _, run in runs_of(study, plan, "DSH", results.identity)]
        values = [results.mean(run, plan.n_seeds, MEASURES["fit"].of) for run in runs]
        if any(values):
            rows.append((results.identity["set"], "here", *map(_mean, values)))
    if not rows:
        return None
    rows += [(each, "in the paper", *seconds) for each, seconds in theirs.items()]
    return Table(
        name,
        "Training time of DSH, seconds, 64 bits",
        (
            Column("set"),
            Column("measured"),
            *(Column(f"{study.x} = {value:g}", 3) for value in study.values),
        ),
        tuple(rows),
    )


def cost_table(every: list[Results], plan: Plan) -> Table | None:
    """The exponents that fit the training times best, with those of the paper's model."""
    rows = []
    for results in every:
        slopes = [growth_exponent(name, results, plan) for name in _COSTS]
        if any(slope is not None for slope in slopes):
            rows.append((str(results.identity["set"]), *slopes))
    if not rows:
        return None
    return Table(
        "cost-exponents",
        "Training time of DSH grows as this power",
        (
            Column("set"),
            Column("of the rows", 2),
            Column("of the bits", 2),
            Column("of the features", 2),
        ),
        (*rows, ("the paper's model, O(αLpnd)", 1.0, 1.0, 1.0)),
        "The slope of a line through the logarithms. It is below 1 while costs that do not grow "
        "(reading rows, starting threads) still count, and above 1 where pairs of groups count.",
    )


_COSTS = ("cost-rows", "cost-bits", "cost-features")


def growth_exponent(name: str, results: Results, plan: Plan) -> float | None:
    """The power of x as which the training time of DSH grows; None if fewer than 3 points."""
    points = [
        (x, value.mean)
        for x, run in runs_of(_study(name), plan, "DSH", results.identity)
        if (value := results.mean(run, plan.n_seeds, MEASURES["fit"].of))
    ]
    if len(points) < 3:
        return None
    x, y = np.log(np.array(points)).T
    return float(np.polyfit(x, y, 1)[0])


def beyond_table(results: Results, plan: Plan, n_candidates: int = 100) -> Table:
    """All measures of each method at each code length on one set, one line each.

    Examples
    --------
    >>> from densehash.datasets import load
    >>> from densehash.paper.problem import Problem
    >>> from densehash.paper.runner import run_plan
    >>> plan = Plan(("LSH", "DSH"), (16, 32), n_seeds=1, parts=("2", "times"))
    >>> results = run_plan(Problem.of(load("digits"), n_queries=50), plan)
    >>> [row[:2] for row in beyond_table(results, plan).rows]
    [('LSH', 16), ('LSH', 32), ('DSH', 16), ('DSH', 32)]
    """
    name = results.identity["set"]
    return Table(
        f"beyond-{slug(name)}",
        f"{name}: every method at every length",
        (
            Column("method"),
            Column("bits", 0),
            Column("MAP", 3, "most"),
            Column("MAP, asymmetric", 3, "most"),
            Column(f"recall@{results.identity['k']} of {n_candidates}", 3, "most"),
            Column("the same, asymmetric", 3, "most"),
            Column("lookup within 2", 3, "most"),
            Column("fit, s", 2, "least"),
            Column("encode a row, µs", 2, "least"),
            Column("bytes a row", 0),
        ),
        tuple(_beyond_rows(results, plan, n_candidates)),
        f"recall@{results.identity['k']} of {n_candidates}: the share of the "
        f"{results.identity['k']} nearest among {n_candidates} candidates, which exact re-ranking "
        "then finds.",
    )


def _beyond_rows(results: Results, plan: Plan, n_candidates: int) -> Iterator[_Row]:
    def mean(run: Run, measure: Callable[[Measured], float]) -> float | None:
        return _mean(results.mean(run, plan.n_seeds, measure))

    for method in plan.methods:
        ours = method in METHODS
        for n_bits in plan.bits:
            run = plan.run(method, n_bits)
            size = mean(run, lambda m: m.bytes_a_row)
            if size is None:
                continue
            yield (
                method,
                n_bits,
                mean(run, lambda m: m.mean_average_precision),
                mean(run, lambda m: m.asymmetric_mean_average_precision) if ours else None,
                mean(run, lambda m: m.recall(n_candidates)),
                mean(run, lambda m: m.asymmetric_recall(n_candidates)) if ours else None,
                mean(run, MEASURES["lookup"].of) if ours else None,
                mean(run, lambda m: m.fit_seconds),
                mean(run, lambda m: 1e6 * m.encode_seconds),
                size,
            )


def _mean(value: Value | None) -> float | None:
    return None if value is None else value.mean


def _study(name: str) -> Study:
    return next(study for study in STUDIES if study.name == name)
