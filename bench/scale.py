"""Measures how time and memory grow with the rows, and what a second worker saves; in one run.

    python bench/scale.py [--rows N,N,..] [--cluster-rows N] [--folder DIR]
                          [--markdown] [--json FILE]

The first table: files of 1, 5 and 20 million SIFT rows (uint8, repeated with noise, sd 4, made in
DIR if they are missing) go through `densehash fit`, `encode` and `build`, each in a separate
process. Its time and its peak of resident memory, including mapped pages, are those that the kernel
reports.

The second: DSH is fitted to 2 million rows with Dask, and codes are written, by one worker and by
two, in turns; and how many bytes workers sent each other during a pass, as counted by Dask.

The vectors are sift.npy in the folder named by DENSEHASH_DATA, or in ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from data import noisy_file
from hashers import Fact, facts_markdown, facts_table
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from densehash import DSH
from densehash.kmeans import lloyd
from densehash.rows import rows_of

N_BITS = 64
N_GROUPS = 96
MOST_RESIDENT = 1.5e9
MOST_SHARE = 0.7
TURNS = 3

notes = Console(stderr=True, highlight=False)
say = partial(notes.print, markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Step:
    """One command over one file."""

    n_rows: int
    command: str
    seconds: float
    peak: int  # bytes of resident memory
    written: int  # bytes


@dataclass(frozen=True)
class Turn:
    """A fit and an encoding by some workers."""

    workers: int
    fit_s: float
    encode_s: float
    sent: int  # bytes that the busiest worker sent during a pass of k-means


# Larger than memory


def measured(command: list[str]) -> tuple[float, int]:
    """Seconds and bytes of a command, as the kernel reports them at its end."""
    start = time.perf_counter()
    run = [sys.executable, "-c", "from densehash.cli import main; main()", *command]
    process = subprocess.Popen(run, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status != 0:
        raise SystemExit(f"densehash {' '.join(command)} failed")
    return seconds, usage.ru_maxrss * 1024


def size_of(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def steps(path: Path, n_rows: int, folder: Path) -> Iterator[Step]:
    model, codes, index = folder / "model.dh", folder / "codes.npy", folder / "index.dh"
    bits = ["--bits", str(N_BITS)]
    for name, output, command in [
        ("fit", model, ["fit", str(path), "-o", str(model), "--hasher", "dsh", *bits]),
        ("encode", codes, ["encode", str(path), "--hasher", str(model), "-o", str(codes)]),
        ("build", index, ["build", str(path), "-o", str(index)]),
    ]:
        seconds, peak = measured(command)
        yield Step(n_rows, name, seconds, peak, size_of(output))


# A cluster


def turn_of(path: Path, workers: int, folder: Path) -> Turn:
    import dask.array as da

    from densehash.distributed import local_cluster, open_dask

    with local_cluster(workers) as client:
        X = open_dask(path)
        first = np.load(path, mmap_mode="r")[:N_GROUPS].astype(np.float32)
        lloyd(rows_of(X), first, 1)  # so that workers import all that they need
        before = client.run(sent_by)
        lloyd(rows_of(X), first, 1)
        after = client.run(sent_by)
        start = time.perf_counter()
        hasher = DSH(N_BITS, random_state=0).fit(X)
        fitted = time.perf_counter()
        da.to_npy_stack(folder / f"codes-{workers}", hasher.transform(X))
        done = time.perf_counter()
    sent = max(after[worker] - before[worker] for worker in after)
    return Turn(workers, fitted - start, done - fitted, sent)


def sent_by(dask_worker: Any) -> int:
    return int(dask_worker.transfer_outgoing_bytes_total)


# Results


def facts_of(found: list[Step], turns: list[Turn]) -> list[Fact]:
    facts = []
    if found:
        most = max(found, key=lambda step: step.peak)
        facts.append(
            Fact(
                f"peak of resident memory, {most.command} of {most.n_rows:,} rows",
                f"{most.peak / 1e9:.2f} GB",
                f"< {MOST_RESIDENT / 1e9:g} GB",
                most.peak < MOST_RESIDENT,
            )
        )
    if turns:
        best = {n: min((t for t in turns if t.workers == n), key=total) for n in (1, 2)}
        share = total(best[2]) / total(best[1])
        facts.append(
            Fact(
                "fit and encode by 2 workers",
                f"{total(best[2]):.1f} s = {share:.2f} × 1 worker's {total(best[1]):.1f} s",
                f"≤ {MOST_SHARE} ×",
                share <= MOST_SHARE,
            )
        )
        answer = N_GROUPS * (128 + 1) * 8
        facts.append(
            Fact(
                "bytes that a worker sends during a pass",
                f"{best[2].sent:,} = {best[2].sent / answer:.2f} × groups × (d + 1) × 8",
                "O(groups × d)",
                best[2].sent < 4 * answer,
            )
        )
    return facts


def total(turn: Turn) -> float:
    return turn.fit_s + turn.encode_s


COLUMNS = ("rows", "command", "seconds", "rows a second", "peak, MB", "written, MB")


def cells(step: Step) -> list[str]:
    return [
        f"{step.n_rows:,}",
        step.command,
        f"{step.seconds:.1f}",
        f"{step.n_rows / step.seconds:,.0f}",
        f"{step.peak / 1e6:,.0f}",
        f"{step.written / 1e6:,.1f}",
    ]


def show(found: list[Step], turns: list[Turn], *, markdown: bool) -> None:
    facts = facts_of(found, turns)
    if markdown:
        lines = [COLUMNS, ["---", "---", *["---:"] * 4], *map(cells, found)]
        print("\n".join(f"| {' | '.join(line)} |" for line in lines))
        print(f"\n{facts_markdown(facts)}")
        return
    table = Table(*COLUMNS, box=SIMPLE_HEAD)
    for step in found:
        table.add_row(*cells(step))
    Console().print(table, facts_table(facts))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Rows beyond memory, and workers.")
    parser.add_argument("--rows", default="1e6,5e6,20e6", help="of the files; empty: none")
    parser.add_argument("--cluster-rows", type=float, default=2e6, help="0: no cluster")
    parser.add_argument("--folder", type=Path, help="where files are kept between runs")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the records there")
    return parser.parse_args()


def main() -> None:
    given = options()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found: list[Step] = []
        for n in [int(float(text)) for text in given.rows.split(",") if text]:
            path = noisy_file(folder / f"sift-{n}.npy", n)
            with tempfile.TemporaryDirectory(dir=folder) as outputs:
                for step in steps(path, n, Path(outputs)):
                    say(" ".join(cells(step)))
                    found.append(step)
        turns: list[Turn] = []
        if given.cluster_rows:
            path = noisy_file(folder / "sift-cluster.npy", int(given.cluster_rows))
            for _ in range(TURNS):
                for workers in (1, 2):
                    turns.append(turn_of(path, workers, Path(temporary)))
                    say(f"{turns[-1]}")
    if given.json:
        records = {"steps": [asdict(s) for s in found], "turns": [asdict(t) for t in turns]}
        given.json.write_text(json.dumps(records, indent=1))
    show(found, turns, markdown=given.markdown)


if __name__ == "__main__":
    main()
