"""Measures how fast hashers learn and hash, and their memory, against named peers; in one run.

    python bench/hashers.py [--quick] [--markdown] [--json FILE]

A million SIFT rows of 128 numbers and 200,000 GIST rows of 960, float32; if a file has fewer rows,
they are repeated with noise. Without the files, rows are drawn from 200 Gaussians, and the title
says so. The contestants of a row take turns on one thread, and the best time of each counts.
"products" are only the matrix products that the work needs at least. Below are peak memory beyond
the input, each measured in a separate process; how the time grows with the rows; and Refined.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from contest import (
    Contestant,
    Requirement,
    Result,
    Row,
    as_markdown,
    as_table,
    measure,
    needed_width,
)
from data import data_folder, noisy_rows
from peers import CannotTakePartError, installed
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from densehash import DSH, Refined

Floats = npt.NDArray[np.float32]

N_BITS = 64
N_GROUPS = 96  # 1.5 per bit
N_PASSES = 3
BLOCK = 8192  # rows of a matrix product: as fast as any, and faster than all rows at once

notes = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Fact:
    """A figure that is measured once, and what it must be."""

    what: str
    measured: str
    required: str
    met: bool


# Rows of the contest


def all_rows(n: int, n_wide: int) -> Iterator[Row]:
    vectors = sift_rows(n)
    yield row_of_fit(vectors, 1 / 2.5, peers=True)
    yield row_of_transform(vectors)
    del vectors
    yield row_of_fit(gist_rows(n_wide), 1 / 1.6, peers=False)


def row_of_fit(vectors: Floats, least: float, *, peers: bool) -> Row:
    n, d = vectors.shape
    rng = np.random.default_rng(0)
    first = vectors[np.sort(rng.choice(n, N_GROUPS, replace=False))]
    hasher = DSH(N_BITS, init=first)
    contestants = [
        Contestant("densehash", nothing_of(lambda: hasher.fit(vectors)), n),
        Contestant("products", lambda: products(vectors, first, N_PASSES), n),
    ]
    required = [Requirement("products", least)]
    if peers:
        kmeans = KMeans(N_GROUPS, init=first, n_init=1, max_iter=N_PASSES)
        contestants.append(
            Contestant("sklearn KMeans alone", nothing_of(lambda: kmeans.fit(vectors)), n)
        )
        required.append(Requirement("sklearn KMeans alone", 1))
        try:
            contestants.append(faiss_kmeans(vectors, first))
            required.append(Requirement("faiss Kmeans alone", 1))
        except CannotTakePartError as error:
            notes.print(f"faiss is left out: {error}")
    return Row(f"DSH.fit, {n:,} × {d}", N_BITS, 1, contestants, tuple(required))


def faiss_kmeans(vectors: Floats, first: Floats) -> Contestant:
    faiss = installed("faiss", "faiss-cpu")
    n, d = vectors.shape

    def train() -> None:
        faiss.omp_set_num_threads(1)
        # Without the last argument, faiss would use only 256 rows per group.
        faiss.Kmeans(d, N_GROUPS, niter=N_PASSES, max_points_per_centroid=n).train(
            vectors, init_centroids=first
        )

    return Contestant("faiss Kmeans alone", train, n)


def row_of_transform(vectors: Floats) -> Row:
    n, d = vectors.shape
    hasher = DSH(N_BITS, random_state=0).fit(vectors[:20_000])
    planes = np.ascontiguousarray(hasher.planes_.T, dtype=np.float32)
    thresholds = hasher.thresholds_.astype(np.float32)

    def product_and_threshold() -> None:
        _ = vectors @ planes >= thresholds

    contestants = [
        Contestant("densehash", nothing_of(lambda: hasher.transform(vectors)), n),
        Contestant("product and threshold", product_and_threshold, n),
    ]
    need = Requirement("product and threshold", 1 / 1.6)
    return Row(f"transform, {n:,} × {d}", N_BITS, 1, contestants, (need,))


def products(vectors: Floats, centers: Floats, n_passes: int) -> None:
    """The least work of k-means: every row times every centre, in each pass."""
    room = np.empty((BLOCK, len(centers)), dtype=np.float32)
    for _ in range(n_passes):
        for start in range(0, len(vectors), BLOCK):
            block = vectors[start : start + BLOCK]
            np.matmul(block, centers.T, out=room[: len(block)])


def nothing_of(work: Callable[[], object]) -> Callable[[], None]:
    """The work, without results to compare."""

    def run() -> None:
        work()

    return run


# Facts


def growth(n: int) -> Fact:
    """The slope of the time of a fit against the rows, both as logarithms."""
    vectors = sift_rows(n)
    sizes = [n // 8, n // 4, n // 2, n]
    hasher = DSH(N_BITS, random_state=0)
    times = [best_of(3, partial(hasher.fit, vectors[:m])) for m in sizes]
    slope = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
    return Fact(
        f"DSH.fit, slope of time from {sizes[0]:,} to {n:,} rows, 1 thread",
        f"{slope:.3f}",
        "0.9 to 1.1",
        0.9 <= slope <= 1.1,
    )


def refined_time(n: int) -> Fact:
    vectors = sift_rows(n)
    hasher = DSH(N_BITS, random_state=0)
    plain = best_of(3, lambda: hasher.fit(vectors))
    refined = best_of(2, lambda: Refined(hasher, random_state=0).fit(vectors))
    return Fact(
        f"Refined(DSH).fit, {n:,} × 128, {os.cpu_count()} CPUs",
        f"{refined:.1f} s",
        f"≤ 3 × DSH.fit + 20 s = {3 * plain + 20:.1f} s",
        refined <= 3 * plain + 20,
    )


def memory(n: int, n_mapped: int) -> Iterator[Fact]:
    for what in ("DSH", "Refined"):
        for size, kind in ((n, "array"), (n_mapped, "memory map")):
            grown = json.loads(
                subprocess.run(
                    [sys.executable, __file__, "--measure-memory", what, kind, str(size)],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
            )
            for step, megabytes in grown.items():
                yield Fact(
                    f"{what}.{step}, {size:,} × 128, {kind}: memory above the input",
                    f"{megabytes:.0f} MB",
                    "≤ 256 MB",
                    megabytes <= 256,
                )


def measure_memory(what: str, kind: str, n: int) -> None:
    """In a separate process: how much memory a fit and a transform take beyond their input."""
    with tempfile.TemporaryDirectory() as folder:
        vectors: Floats = sift_rows(n) if kind == "array" else sift_map(Path(folder), n)
        hasher = DSH(N_BITS, random_state=0)
        if what == "Refined":
            hasher = Refined(hasher, random_state=0)
        small = np.random.default_rng(0).standard_normal((1000, 128), dtype=np.float32)
        type(hasher)(**hasher.get_params(deep=False)).fit(small)  # imports and thread stacks
        codes = np.ones((n, N_BITS // 8), dtype=np.uint8)  # the output does not count as overhead
        grown = {"fit": peak_growth(lambda: hasher.fit(vectors))}
        grown["transform"] = peak_growth(lambda: hasher.transform(vectors, out=codes))
    sys.stdout.write(json.dumps(grown))


def peak_growth(work: Callable[[], object]) -> float:
    """By how many megabytes the process grew at most, without pages of mapped files."""
    import threading

    before, peak, done = anonymous_memory(), 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, anonymous_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return max(peak, anonymous_memory()) - before


def anonymous_memory() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("memory is measured on Linux only")


def best_of(turns: int, work: Callable[[], object]) -> float:
    """Seconds of the fastest turn."""
    best = float("inf")
    for _ in range(turns):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


# Vectors


def sift_rows(n: int) -> Floats:
    folder = data_folder()
    if folder is None:
        return gaussians(n, 128)
    return noisy_rows(np.load(folder / "sift.npy", mmap_mode="r"), n).astype(np.float32)


def gist_rows(n: int) -> Floats:
    folder = data_folder()
    if folder is None or not (folder / "gist.npy").exists():
        return gaussians(n, 960)
    return noisy_rows(np.load(folder / "gist.npy", mmap_mode="r"), n).astype(np.float32)


def sift_map(folder: Path, n: int) -> Floats:
    """The same rows in a file, mapped; written part by part."""
    path = folder / "rows.npy"
    part = sift_rows(min(n, 500_000))
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, 128))
    for start in range(0, n, len(part)):
        rows[start : start + len(part)] = part[: n - start]
    rows.flush()
    del rows, part
    mapped: Floats = np.load(path, mmap_mode="r")
    return mapped


def gaussians(n: int, d: int) -> Floats:
    rng = np.random.default_rng(0)
    centers = 2 * rng.standard_normal((200, d), dtype=np.float32)
    rows = rng.standard_normal((n, d), dtype=np.float32)
    rows += centers[rng.integers(0, 200, n)]
    return rows


# The run


def title() -> str:
    source = "SIFT and GIST rows" if data_folder() else "rows of 200 Gaussians"
    return f"Hashers on {source}: {platform.machine()}, {os.cpu_count()} CPUs"


def caption() -> str:
    names = ("densehash", "numpy", "scikit-learn", "faiss-cpu")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names) + "."


def facts_table(facts: list[Fact]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for heading in ("what", "measured", "required", "met"):
        table.add_column(heading, no_wrap=True)
    for fact in facts:
        style = None if fact.met else "bold red"
        table.add_row(
            fact.what, fact.measured, fact.required, "yes" if fact.met else "NO", style=style
        )
    return table


def facts_markdown(facts: list[Fact]) -> str:
    lines = ["| what | measured | required | met |", "| --- | --- | --- | --- |"]
    for fact in facts:
        met = "yes" if fact.met else "NO"
        lines.append(f"| {fact.what} | {fact.measured} | {fact.required} | {met} |")
    return "\n".join(lines)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Hashers against their peers.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, two turns")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--json", metavar="FILE", help="write the records there; - prints them")
    parser.add_argument("--measure-memory", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def run(n: int, n_wide: int, n_mapped: int, turns: int) -> tuple[list[Result], list[Fact]]:
    results, facts = [], []
    with threadpool_limits(1):
        for row in all_rows(n, n_wide):
            with notes.status(row.work):
                results.append(measure(row, turns, budget_s=60))
        with notes.status("growth"):
            facts.append(growth(n))
    with notes.status("Refined"):
        facts.append(refined_time(n))
    with notes.status("memory"):
        facts.extend(memory(n, n_mapped))
    return results, facts


def main() -> None:
    asked = options()
    if asked.measure_memory:
        what, kind, n = asked.measure_memory
        measure_memory(what, kind, int(n))
        return
    sizes = (100_000, 20_000, 400_000, 2) if asked.quick else (1_000_000, 200_000, 4_000_000, 5)
    results, facts = run(*sizes)
    peers = ["products"]
    if asked.json:
        records = {
            "title": title(),
            "versions": caption(),
            "rows": [result.record() for result in results],
            "facts": [asdict(fact) for fact in facts],
        }
        text = json.dumps(records, indent=2) + "\n"
        if asked.json == "-":
            sys.stdout.write(text)
            return
        Path(asked.json).write_text(text, encoding="utf-8")
    if asked.markdown:
        contests = as_markdown(results, peers, title(), caption(), "row")
        sys.stdout.write(f"{contests}\n\n{facts_markdown(facts)}\n")
    else:
        for table in (
            as_table(results, peers, title(), caption(), "row"),
            facts_table(facts),
        ):
            Console(width=needed_width(table)).print(table)


if __name__ == "__main__":
    main()
