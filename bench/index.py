"""How fast and how good the index is, against named peers; all in one run.

    python bench/index.py [--rows N] [--queries N] [--codes N] [--only NAME,..] [--markdown]
                          [--json FILE] [--out DIR]

The last 10,000 SIFT rows are queries, the 600,000 before them are searched: 10 neighbours of each
query, all queries in one call, one thread. Recall is the share of the true ten that was found.
Every contestant is built from vectors by two threads, in a process of its own, and asked with
several settings that trade recall for speed. Where two are compared at a recall, each has its
fastest setting that reaches it; they take turns, and the best time of each counts. What is built
in less than 10 seconds is built three times, and the best time counts.

Before that, tables of substrings against a scan: radius 2 in ten million codes of 64 bits.

The vectors are sift.npy, uint8 of shape (n, 128), in the folder named by DENSEHASH_DATA, or in
../shared/data beside the checkout. --out writes report.html there, and its figures.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from functools import partial
from operator import attrgetter
from pathlib import Path

import numpy as np
from contest import needed_width
from hashers import Fact, facts_markdown, facts_table
from index_child import N_QUERIES, TURNS, Answer, Worker, sift
from index_multi import N_CODES, multi_results
from index_page import costs_markdown, costs_table, costs_title, write_page
from index_peers import BUILD_THREADS, CONTESTANTS, Contestant, Ids, K, Setting
from index_results import PAIRS, RECALL, Duel, Measured, Pair, Point, Results, promising
from peers import CannotTakePartError
from rich.console import Console

from densehash import hamming
from densehash.errors import InputError
from densehash.truth import nearest

N_ROWS = 600_000
N_TUNED = 1000  # queries that an index tunes itself with
REPEATED = 0.9  # settings of less recall are asked once
DUEL_TURNS = 5
DUEL_S = 30.0  # after which a duel ends before its time
MULTI = "multi"

notes = Console(stderr=True, highlight=False)
say = partial(notes.print, markup=False, soft_wrap=True)


# Measuring


def recall_of(found: Ids, truth: Ids) -> float:
    """The share of the true neighbours that was found; no answer names a row twice."""
    asked = truth[: len(found)]
    return float((found[:, :, None] == asked[:, None, :]).sum() / asked.size)


def point_of(setting: Setting, answer: Answer, truth: Ids) -> Point:
    return Point(setting, recall_of(answer.found, truth), len(answer.found) / answer.seconds)


def measured(worker: Worker, results: Results, truth: Ids) -> Measured:
    contestant = worker.contestant
    cost = worker.build(results.n_rows, results.n_queries)
    once = [
        point_of(setting, worker.ask(setting, turns=1), truth) for setting in contestant.settings
    ]
    again = {
        str(point): point_of(point.setting, worker.ask(point.setting, TURNS - 1), truth)
        for point in promising(once)
        if point.recall >= REPEATED
    }
    points = [max(point, again.get(str(point), point), key=attrgetter("speed")) for point in once]
    return Measured(contestant, cost, points, tuned(worker, truth))


def tuned(worker: Worker, truth: Ids) -> Point | None:
    """How an index of ours does when it has chosen its settings itself."""
    if not worker.contestant.is_ours:
        return None
    try:
        worker.tune(N_TUNED, RECALL)
    except InputError as error:
        say(f"{worker.contestant.title}: {error}")
        return None
    return point_of({}, worker.ask({}), truth)


def duel(pair: Pair, workers: dict[str, Worker], results: Results) -> Duel | None:
    ours, peer = (results.measured[name].fastest for name in (pair.ours, pair.peer))
    if ours is None or peer is None:
        who = pair.ours if ours is None else pair.peer
        say(f"no word on {pair.ours} against {pair.peer}: {who} never had recall {RECALL:g}")
        return None
    best = {pair.ours: 0.0, pair.peer: 0.0}
    start = time.monotonic()
    for _ in range(DUEL_TURNS):
        if time.monotonic() - start > DUEL_S:
            break
        for name, point in ((pair.ours, ours), (pair.peer, peer)):
            answer = workers[name].ask(point.setting, turns=1)
            best[name] = max(best[name], len(answer.found) / answer.seconds)
    return Duel(pair, best[pair.ours], best[pair.peer])


def run(names: list[str], n_rows: int, n_queries: int, n_codes: int) -> Results:
    results = Results(n_rows, n_queries)
    if MULTI in names:
        with notes.status("tables of substrings"):
            results.multi = multi_results(n_codes)
    contestants = [CONTESTANTS[name] for name in names if name != MULTI]
    if contestants:
        run_contestants(contestants, results)
    return results


def run_contestants(contestants: list[Contestant], results: Results) -> None:
    base, queries = sift(results.n_rows, results.n_queries)
    results.n_rows, results.n_queries = len(base), len(queries)
    with notes.status("exact neighbours"):
        truth = nearest(queries, np.array(base), k=K)
    rivals = {name for pair in PAIRS for name in (pair.ours, pair.peer)}
    workers = {}
    with ExitStack() as to_the_end:  # rivals meet when all are built
        for contestant in contestants:
            with ExitStack() as stack:
                worker = stack.enter_context(Worker(contestant))
                try:
                    with notes.status(contestant.title):
                        each = measured(worker, results, truth)
                except (CannotTakePartError, BrokenProcessPool) as error:
                    say(f"{contestant.title} is left out: {error}")
                    continue
                say(line_of(each))
                results.measured[contestant.name] = each
                if contestant.name in rivals:
                    workers[contestant.name] = worker
                    to_the_end.push(stack.pop_all())
        for pair in PAIRS:
            if {pair.ours, pair.peer} <= set(workers):
                with notes.status(f"{pair.ours} against {pair.peer}"):
                    found = duel(pair, workers, results)
                results.duels += [found] if found else []


def line_of(each: Measured) -> str:
    fastest = each.fastest
    speed = f"{fastest.speed:,.0f} queries a second; {fastest}" if fastest else "not reached"
    return (
        f"{each.contestant.title}: built in {each.cost.build_s:.1f} s; recall {RECALL:g}: {speed}"
    )


# The run


def about() -> dict[str, str]:
    names = ("densehash", "numpy", "faiss-cpu", "hnswlib", "usearch", "scikit-learn")
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
    parser = argparse.ArgumentParser(description="The index against its peers.")
    parser.add_argument("--rows", type=int, default=N_ROWS, help="how many are searched")
    parser.add_argument("--queries", type=int, default=N_QUERIES, help=f"at most {N_QUERIES:,}")
    parser.add_argument("--codes", type=int, default=N_CODES, help="how many tables are made of")
    known = [*CONTESTANTS, MULTI]
    parser.add_argument("--only", metavar="NAME,..", help=f"some of: {', '.join(known)}")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--json", metavar="FILE", help="write the records there; - prints them")
    parser.add_argument("--out", metavar="DIR", type=Path, help="write report and figures there")
    asked = parser.parse_args()
    asked.names = asked.only.split(",") if asked.only else known
    unknown = [name for name in asked.names if name not in known]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    if not 1 <= asked.queries <= N_QUERIES or min(asked.rows, asked.codes) < 10_000:
        parser.error(f"rows and codes are at least 10,000, queries from 1 to {N_QUERIES:,}")
    return asked


def two_cpus() -> None:
    """Let nobody, whatever it is told, build with more threads than the others."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:BUILD_THREADS])


def write_tables(results: Results, facts: list[Fact], *, markdown: bool) -> None:
    if markdown:
        parts = [facts_markdown(facts), costs_title(results), costs_markdown(results)]
        sys.stdout.write("\n\n".join(parts[: 3 if results.measured else 1]) + "\n")
        return
    for table in (facts_table(facts), costs_table(results))[: 2 if results.measured else 1]:
        Console(width=needed_width(table)).print(table)


def main() -> None:
    asked = options()
    if asked.out:  # now rather than after all the work
        asked.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    facts_about = about()
    two_cpus()
    results = run(asked.names, asked.rows, asked.queries, asked.codes)
    say(f"all in {(time.monotonic() - start) / 60:.1f} minutes")
    facts = list(results.facts())
    if asked.json:
        text = json.dumps({"about": facts_about, **results.record()}, indent=2) + "\n"
        if asked.json == "-":
            sys.stdout.write(text)
        else:
            Path(asked.json).write_text(text, encoding="utf-8")
    if asked.json != "-":
        write_tables(results, facts, markdown=asked.markdown)
    if asked.out:
        for path in write_page(results, facts, facts_about, asked.out):
            say(f"wrote {path}")


if __name__ == "__main__":
    main()
