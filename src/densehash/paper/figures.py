"""Figures of the studies, made only from records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from densehash.paper.methods import METHODS
from densehash.paper.results import Measured, Results, Value
from densehash.paper.runs import Run
from densehash.paper.studies import Plan, Study, runs_of
from densehash.report import Figure, Series

__all__ = ["MEASURES", "Measure", "draw", "slug"]


@dataclass(frozen=True)
class Measure:
    """What the y axis of a figure shows.

    Attributes
    ----------
    title : title of the axis
    of : computes it from one run; hashers are ranked by Hamming distance
    asymmetric : the same if they are ranked by the query's margins
    log : whether the axis is logarithmic
    """

    title: str
    of: Callable[[Measured], float]
    asymmetric: Callable[[Measured], float] | None = None
    log: bool = False


MEASURES = {
    "map": Measure(
        "mean average precision",
        lambda run: run.mean_average_precision,
        lambda run: run.asymmetric_mean_average_precision,
    ),
    "fit": Measure("training time, seconds", lambda run: run.fit_seconds, log=True),
    "query": Measure("test time, microseconds", lambda run: 1e6 * run.query_seconds, log=True),
    "lookup": Measure("precision within radius 2", lambda run: run.precision_within(2)),
}

_X_TITLES = {
    "bits": "bits",
    "p": "p, passes of k-means",
    "alpha": "alpha, groups a bit",
    "r": "r, nearest groups",
    "rows": "rows to learn from",
    "features": "features",
    "candidates": "candidates re-ranked",
    "recall": "recall",
}

ASYMMETRIC = ", asymmetric"
"""Ends the name of a method's second line, which is ranked by the query's margins."""


def draw(study: Study, results: Results, plan: Plan) -> Figure | None:
    """Draw a study on one set; None if nothing of it was measured."""
    series = tuple(
        line
        for method in study.methods
        if method in plan.methods
        for line in _lines(study, results, plan, method)
        if line.x
    )
    if not series:
        return None
    name = str(results.identity["set"])
    measure = MEASURES.get(study.y)
    log_y = measure is not None and measure.log
    return Figure(
        f"{study.name}-{slug(name)}",
        f"{name}: {study.title}",
        _X_TITLES[study.x],
        study.y if measure is None else measure.title,
        series,
        log_x=study.x in ("bits", "rows", "candidates"),
        log_y=log_y,
    )


def slug(name: str) -> str:
    """A name in lower-case letters, digits and hyphens, for files.

    Examples
    --------
    >>> slug("My vectors, 2nd.")
    'my-vectors-2nd'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "set"


def _lines(study: Study, results: Results, plan: Plan, method: str) -> Iterator[Series]:
    runs = list(runs_of(study, plan, method, results.identity))
    second = study.asymmetric and method in METHODS
    if study.x == "recall":
        for _, run in runs:
            yield _precision_recall(results, run, method, plan.n_seeds)
    elif study.x == "candidates":
        for _, run in runs:
            within = [n for n in study.values if n <= results.identity["rows"]]
            kinds = {"": Measured.recall, ASYMMETRIC: Measured.asymmetric_recall}
            for suffix, recall in kinds.items():
                if not suffix or second:
                    points = [
                        (n, results.mean(run, plan.n_seeds, partial(_at, recall, int(n))))
                        for n in within
                    ]
                    yield _series(method + suffix, points)
    else:
        measure = MEASURES[study.y]
        yield _series(method, [(x, results.mean(run, plan.n_seeds, measure.of)) for x, run in runs])
        if second and measure.asymmetric is not None:
            points = [(x, results.mean(run, plan.n_seeds, measure.asymmetric)) for x, run in runs]
            yield _series(method + ASYMMETRIC, points)


def _at(recall: Callable[[Measured, int], float], n: int, measured: Measured) -> float:
    return recall(measured, n)


def _series(name: str, points: list[tuple[float, Value | None]]) -> Series:
    there = [(x, value) for x, value in points if value is not None]
    return Series(
        name,
        tuple(x for x, _ in there),
        tuple(value.mean for _, value in there),
        tuple(value.spread for _, value in there),
    )


def _precision_recall(results: Results, run: Run, method: str, n_seeds: int) -> Series:
    """The mean curve over seeds, at twenty levels of recall."""
    curves = []
    levels = np.linspace(0.05, 1, 20)
    for measured in results.seeds(run, n_seeds):
        precision, recall = measured.precision_recall
        there = np.isfinite(precision)  # NaN for radii within which no query has a code
        curves.append(np.interp(levels, recall[there], precision[there]))
    if not curves:
        return Series(method, (), ())
    every = np.array(curves)
    spread = every.std(axis=0, ddof=1).tolist() if len(every) > 1 else [None] * len(levels)
    return Series(method, tuple(levels.tolist()), tuple(every.mean(axis=0).tolist()), tuple(spread))
