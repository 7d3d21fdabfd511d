"""Measures how fast and how good the index is, against named peers on four sets; all in one run.

    python bench/index.py [--sets NAME,..] [--only NAME,..] [--rows N] [--queries N] [--codes N]
                          [--markdown] [--json FILE] [--out DIR]

The sets are sift (600,000 rows; ours and usearch also take its bytes), glove-large (198,000,
cosine), gist (50,000) and wordnet (100,000, cosine), with 10 neighbours of each query and one
thread. Recall is the share of the true ten that was found. Every contestant is built from vectors
by two threads in a separate process. It is searched with settings that trade speed for recall,
until it has recall 0.99; around 0.95 and 0.99, more settings between two are tried. Then those that
have 0.95, and those that have 0.99, take turns, each with its fastest setting: all queries in one
call, and the first thousand one per call. The best time of each counts. An index that is built in
less than 10 seconds is built three times, and the best time counts. HNSW32 has efConstruction 200;
it is also built with 40, with which our build is compared. A contestant that cannot be imported or
fails is left out, with the reason.

Also measured: one query on an index of 1,000 rows; and tables of substrings against a scan, radius
2 in ten million codes of 64 bits.

The vectors are sift.npy, glove-large.npy, gist.npy and wordnet.npy in the folder named by
DENSEHASH_DATA, or in ../shared/data beside the checkout. --json is written after each set. --out
writes report.html there, and its figures.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from contest import needed_width
from index_child import Answers, Worker
from index_multi import N_CODES, multi_results
from index_page import for_console, for_markdown, tables, write_page
from index_peers import BUILD_THREADS, CONTESTANTS, Contestant, Ids, K, Ladder, Setting
from index_results import Measured, OneQuery, Point, Race, Results, SetResults
from index_sets import SETS, TARGETS, VectorSet
from index_small import overhead_us
from peers import CannotTakePartError
from rich.console import Console

from densehash import hamming
from densehash.truth import nearest

FLAT = 0.001  # a ladder that gains less in two steps is stopped
SLOW_S = 15.0  # a ladder is also stopped if all queries take longer
BISECTIONS = 2
RACE_TURNS = 5
RACE_S = 10.0  # after this long, a contestant skips the remaining turns
ONE_QUERY_TURNS = 3
MULTI, SMALL = "multi", "small"

notes = Console(stderr=True, highlight=False)
say = partial(notes.print, markup=False, soft_wrap=True)


# Measuring


def recall_of(found: Ids, truth: Ids) -> float:
    """The share of the true neighbours that was found; no answer has a row twice."""
    asked = truth[: len(found)]
    same = found.astype(np.int64)[:, :, np.newaxis] == asked[:, np.newaxis, :]
    return float(same.sum() / asked.size)


def asked_once(worker: Worker, setting: Setting, truth: Ids) -> Point:
    answer = worker.ask(setting)
    return Point(setting, recall_of(answer.found, truth), len(answer.found) / answer.seconds)


def climbed(worker: Worker, ladder: Ladder, truth: Ids) -> list[Point]:
    """Measure step by step up to the highest target, then settings between steps at each target."""
    points: dict[float, Point] = {}

    def recall_at(step: float) -> float:
        points[step] = asked_once(worker, ladder.setting(step), truth)
        return points[step].recall

    recalls: list[float] = []
    for step in ladder.steps:
        recalls.append(recall_at(step))
        if recalls[-1] >= TARGETS[-1] or len(truth) / points[step].speed > SLOW_S:
            break
        if len(recalls) > 2 and recalls[-1] < recalls[-3] + FLAT:
            break
    for target in TARGETS:
        high = min((step for step in points if points[step].recall >= target), default=None)
        for _ in range(BISECTIONS):
            below = [step for step in points if high is not None and step < high]
            if high is None or not below:
                break
            middle = ladder.between(max(below), high)
            if middle is not None and recall_at(middle) >= target:
                high = middle
    return list(points.values())


def measured(worker: Worker, results: SetResults, truth: Ids) -> Measured:
    contestant = worker.contestant
    cost = worker.build(results.vectors.name, results.n_rows, results.n_queries)
    points = [point for ladder in contestant.ladders for point in climbed(worker, ladder, truth)]
    if contestant.default:
        points.append(asked_once(worker, {}, truth))
    return Measured(contestant, cost, points)


def race(target: float, workers: dict[str, Worker], results: SetResults, truth: Ids) -> Race:
    """All that have the recall take turns, with all queries in one call and with one per call."""
    points = {name: point for name in workers if (point := results.measured[name].fastest(target))}
    best = dict.fromkeys(points, 0.0)
    spent = dict.fromkeys(points, 0.0)
    one: dict[str, OneQuery] = {}
    for _ in range(RACE_TURNS):
        for name, point in points.items():
            if spent[name] > RACE_S or name in results.absent:
                continue
            with left_out_if_it_fails(name, results):
                answer = workers[name].ask(point.setting, turns=1)
                best[name] = max(best[name], len(answer.found) / answer.seconds)
                spent[name] += answer.seconds
    for _ in range(ONE_QUERY_TURNS):
        for name, point in points.items():
            if name in results.absent:
                continue
            with left_out_if_it_fails(name, results):
                found = one_query_of(workers[name].ask_one_by_one(point.setting), truth)
                if name not in one or found.median < one[name].median:
                    one[name] = found
    raced = {
        name: replace(point, speed=best[name])
        for name, point in points.items()
        if name not in results.absent
    }
    return Race(target, raced, one)


@contextmanager
def left_out_if_it_fails(name: str, results: SetResults) -> Iterator[None]:
    """Continue with the others, whatever a contestant raises."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        # Some errors of native code have no message, only a type.
        known = isinstance(error, CannotTakePartError)
        reason = str(error) if known else f"{type(error).__name__}: {error}"
        results.absent[name] = reason
        say(f"{results.vectors.title}: {CONTESTANTS[name].title} is left out: {reason}")


def one_query_of(answers: Answers, truth: Ids) -> OneQuery:
    median, p99 = 1e6 * np.percentile(answers.seconds, (50, 99))
    return OneQuery(float(median), float(p99), recall_of(answers.found, truth))


def run_set(
    vectors: VectorSet, contestants: list[Contestant], asked: argparse.Namespace
) -> SetResults:
    n_rows, n_queries = min(asked.rows, vectors.n_rows), min(asked.queries, vectors.n_queries)
    results = SetResults(vectors, n_rows, n_queries)
    with notes.status(f"{vectors.title}: exact neighbours"):
        queries, rows = vectors.queries(n_queries), vectors.rows(n_rows)
        truth = nearest(queries, rows, k=K, metric=vectors.metric)
        del rows
    workers: dict[str, Worker] = {}
    with ExitStack() as to_the_end:  # they race when all are built
        for contestant in contestants:
            with ExitStack() as stack:
                worker = stack.enter_context(Worker(contestant))
                with left_out_if_it_fails(contestant.name, results):
                    with notes.status(f"{vectors.title}: {contestant.title}"):
                        each = measured(worker, results, truth)
                    say(f"{vectors.title}: {line_of(each)}")
                    results.measured[contestant.name] = each
                    if each.points:
                        workers[contestant.name] = worker
                        to_the_end.push(stack.pop_all())
        for target in TARGETS:
            with notes.status(f"{vectors.title}: recall {target:g}, taking turns"):
                results.races.append(race(target, workers, results, truth))
    return results


def line_of(each: Measured) -> str:
    parts = [f"{each.contestant.title}: built in {each.cost.build_s:.1f} s"]
    for target in TARGETS if each.points else ():
        fastest = each.fastest(target)
        speed = f"{fastest.speed:,.0f} queries a second; {fastest}" if fastest else "not reached"
        parts.append(f"recall {target:g}: {speed}")
    return "; ".join(parts)


# The run


def about() -> dict[str, str]:
    names = (
        *("densehash", "numpy", "faiss-cpu", "rabitqlib", "scann", "hnswlib", "usearch", "ngt"),
        "scikit-learn",
    )
    return {
        "machine": f"{platform.machine()}, {hamming.instruction_set()}, {os.cpu_count()} CPUs",
        "system": f"{platform.system()}, Python {platform.python_version()}",
        **{name: version_of(name) for name in names},
    }


def version_of(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The index against its peers, on four sets.")
    known = [*CONTESTANTS, SMALL, MULTI]
    parser.add_argument("--sets", metavar="NAME,..", help=f"some of: {', '.join(SETS)}")
    parser.add_argument("--only", metavar="NAME,..", help=f"some of: {', '.join(known)}")
    parser.add_argument("--rows", type=int, default=10**9, help="how many are searched at most")
    parser.add_argument("--queries", type=int, default=10**9, help="how many are asked at most")
    parser.add_argument("--codes", type=int, default=N_CODES, help="how many tables are made of")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--json", metavar="FILE", help="write the records there; - prints them")
    parser.add_argument("--out", metavar="DIR", type=Path, help="write report and figures there")
    asked = parser.parse_args()
    asked.sets = chosen(parser, asked.sets, list(SETS))
    asked.names = chosen(parser, asked.only, known)
    if asked.queries < 100 or min(asked.rows, asked.codes) < 10_000:
        parser.error("rows and codes are at least 10,000, queries at least 100")
    return asked


def chosen(parser: argparse.ArgumentParser, text: str | None, known: list[str]) -> list[str]:
    """Names from a list with commas; None: all."""
    names = text.split(",") if text else known
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    return names


def two_cpus() -> None:
    """Limit the process to two CPUs, so that no contestant builds with more threads than others."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:BUILD_THREADS])


def run(asked: argparse.Namespace, facts_about: dict[str, str]) -> Results:
    """All measurements; records are written after each set."""
    results = Results()

    def keep() -> None:
        if asked.json and asked.json != "-":
            text = records(results, facts_about)
            Path(asked.json).write_text(text, encoding="utf-8")

    if SMALL in asked.names:
        with notes.status("one query on a small index"):
            results.overhead_us = overhead_us()
    if MULTI in asked.names:
        with notes.status("tables of substrings"):
            results.multi = multi_results(asked.codes)
    keep()
    for name in asked.sets:
        contestants = [
            each for each in CONTESTANTS.values() if each.name in asked.names and name in each.sets
        ]
        if contestants:
            start = time.monotonic()
            results.sets[name] = run_set(SETS[name], contestants, asked)
            say(f"{name} in {(time.monotonic() - start) / 60:.1f} minutes")
            keep()
    return results


def records(results: Results, facts_about: dict[str, str]) -> str:
    return json.dumps({"about": facts_about, **results.record()}, indent=2) + "\n"


def write_tables(results: Results, *, markdown: bool) -> None:
    for table in tables(results):
        if markdown:
            sys.stdout.write(for_markdown(table) + "\n\n")
        else:
            made = for_console(table)
            Console(width=needed_width(made)).print(made)


def main() -> None:
    asked = options()
    if asked.out:  # fails now rather than after all the work
        asked.out.mkdir(parents=True, exist_ok=True)
    facts_about = about()
    two_cpus()
    results = run(asked, facts_about)
    if asked.json == "-":
        sys.stdout.write(records(results, facts_about))
    else:
        write_tables(results, markdown=asked.markdown)
    if asked.out:
        for path in write_page(results, facts_about, asked.out):
            say(f"wrote {path}")


if __name__ == "__main__":
    main()
