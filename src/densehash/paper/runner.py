"""Runs what has no record yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from densehash.paper.methods import COSTS
from densehash.paper.problem import Problem
from densehash.paper.records import Records
from densehash.paper.results import Results
from densehash.paper.runs import Run, measure
from densehash.paper.studies import Plan, runs_of
from densehash.progress import steps

__all__ = ["complete", "planned", "run_plan"]


def run_plan(
    problem: Problem, plan: Plan, records: Records | None = None, *, verbose: bool = False
) -> Results:
    """Run the parts of a plan that have no record yet, and return the results of the whole plan.

    Parameters
    ----------
    problem : the set on which the methods are measured
    plan : what to run
    records : where measurements are kept; default in memory
    verbose : whether to show a progress bar

    Examples
    --------
    >>> from densehash.datasets import load
    >>> plan = Plan(("DSH",), (16,), n_seeds=1, parts=("2",))
    >>> results = run_plan(Problem.of(load("digits"), n_queries=50), plan)
    >>> results.get(plan.run("DSH", 16)).bytes_a_row
    2
    """
    records = Records(None) if records is None else records
    complete(problem, planned(plan, problem), records, verbose=verbose)
    return Results(problem.identity, records)


def planned(plan: Plan, problem: Problem) -> list[Run]:
    """All runs of a plan, each once.

    All methods come with one seed before the next, so that an interrupted run has seen all of them.
    """
    every = [
        run
        for study in plan.studies()
        for method in study.methods
        if method in plan.methods
        for _, run in runs_of(study, plan, method, problem.identity)
    ]
    seeded = (replace(run, seed=seed) for seed in range(plan.n_seeds) for run in every)
    return _once(seeded, problem)


def _once(runs: Iterable[Run], problem: Problem) -> list[Run]:
    """Runs with different keys; if a method uses no randomness, all its seeds have one key."""
    by_key: dict[str, Run] = {}
    for run in runs:
        by_key.setdefault(repr(run.key(problem.identity)), run)
    return list(by_key.values())


def complete(
    problem: Problem, runs: Iterable[Run], records: Records, *, verbose: bool = False
) -> int:
    """Run what has no record yet, and return how many runs that took."""
    left = [run for run in _once(runs, problem) if records.get(run.key(problem.identity)) is None]
    with steps(sum(map(_cost, left)), shown=verbose) as begin:
        for run in left:
            what = f"{problem.name}, {run.n_bits} bits, {run.method}, seed {run.seed}"
            with begin(what, _cost(run)):
                records.add(run.key(problem.identity), measure(problem, run))
    return len(left)


def _cost(run: Run) -> float:
    return COSTS.get(run.method, 1)
