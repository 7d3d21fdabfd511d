"""Estimates what a billion rows would take, by a small simulation from the rates of one worker.

    python bench/billion.py [--rows N] [--features D] [--bits B] [--workers W,W,..] [--markdown]

Chunks are tasks, and each worker has a run of neighbouring ones; a worker that is done takes over
tasks that others have not begun. The scheduler hands out one task after the other. A worker reads a
chunk, computes, and keeps the answer. Answers are combined in a binary tree; if two are on
different workers, one of them is sent. Workers die now and then: what they held is computed again.
All rates can be set; --help shows the defaults, and `make bench-scale` measures them.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

from rich.console import Console
from rich.table import Table

CHUNK_BYTES = 1 << 24


@dataclass(frozen=True)
class World:
    """Rates. Rows a second are for one worker with one thread: `make bench-scale` measures them."""

    rows: float
    features: int
    bits: int
    workers: int
    bytes_a_number: int
    pass_rate: float  # rows a second of a k-means pass
    encode_rate: float  # rows a second
    index_rate: float  # rows a second: hashed, grouped and written
    disk: float  # bytes a second of shared storage, for each worker
    network: float  # bytes a second of a worker
    scheduler: float  # seconds of the scheduler for each task
    deaths: float  # per worker and hour

    @property
    def chunk_rows(self) -> int:
        """The rows of a chunk: a power of two, as in `open_dask`."""
        fitting = max(CHUNK_BYTES // (self.features * self.bytes_a_number), 8192)
        return 1 << (fitting.bit_length() - 1)

    @property
    def n_chunks(self) -> int:
        return math.ceil(self.rows / self.chunk_rows)

    @property
    def groups(self) -> int:
        """Groups of DSH: 1.5 times the bits."""
        return round(1.5 * self.bits)

    @property
    def answer_bytes(self) -> int:
        """Sums and counts of all groups, in float64."""
        return self.groups * (self.features + 1) * 8


@dataclass
class Pass:
    """What a pass took: seconds, bytes that the busiest worker received, and repeated tasks."""

    seconds: float
    received: float
    again: int


def simulate(world: World, rate: float, answer_bytes: int, *, combine: bool, seed: int = 0) -> Pass:
    """One pass over all chunks, and the tree over their answers."""
    rng = random.Random(seed)
    read = world.chunk_rows * world.features * world.bytes_a_number / world.disk
    work = world.chunk_rows / rate
    free = [(0.0, worker) for worker in range(world.workers)]
    heapq.heapify(free)
    limits = [worker * world.n_chunks // world.workers for worker in range(world.workers + 1)]
    runs = [deque(range(*pair)) for pair in pairwise(limits)]
    held: list[list[int]] = [[] for _ in runs]
    ready: dict[int, tuple[float, int]] = {}  # by chunk: when it is ready, and on which worker
    scheduler, again = 0.0, 0
    while len(ready) < world.n_chunks:
        now, worker = heapq.heappop(free)
        if runs[worker]:
            chunk = runs[worker].popleft()
        else:  # takes over what others have not begun, the farthest first
            longest = max(runs, key=len)
            if not longest:
                break
            chunk = longest.pop()
        begin = scheduler = max(scheduler, now) + world.scheduler  # hands out one at a time
        took = (read + work) * rng.uniform(0.95, 1.15)  # machines are never equally fast
        if rng.random() < took / 3600 * world.deaths:
            # A new worker starts after half a minute; what only the old one held is lost.
            lost = [chunk, *held[worker]]
            runs[worker].extendleft(reversed(lost))
            for number in held[worker]:
                del ready[number]
            again += len(lost)
            held[worker] = []
            heapq.heappush(free, (begin + took / 2 + 30.0, worker))
            continue
        ready[chunk] = begin + took, worker
        held[worker].append(chunk)
        heapq.heappush(free, (begin + took, worker))
    received = [0.0] * world.workers
    if not combine:
        return Pass(max(when for when, _ in ready.values()), 0.0, again)
    level = [ready[chunk] for chunk in range(world.n_chunks)]
    n_tasks = world.n_chunks + again
    while len(level) > 1:
        above, busy = [], 0.0
        for one, two in zip(level[::2], level[1::2], strict=False):
            start, worker = max(one[0], two[0]), one[1]
            if one[1] != two[1]:
                received[worker] += answer_bytes
                start += answer_bytes / world.network
            busy, n_tasks = max(busy, start) + world.scheduler, n_tasks + 1
            above.append((busy, worker))
        above.extend(level[len(above) * 2 :])
        level = above
    return Pass(max(level[0][0], n_tasks * world.scheduler), max(received), again)


def table_of(world: World, workers: list[int], *, markdown: bool) -> None:
    head = ["workers", "a pass of k-means", "fit", "codes", "index", "received a pass", "again"]
    lines = []
    for n in workers:
        here = World(**{**vars(world), "workers": n})
        one = simulate(here, here.pass_rate, here.answer_bytes, combine=True)
        # DSH: three passes of k-means, and samples, which cost about one more pass.
        codes = simulate(here, here.encode_rate, 0, combine=False)
        index = simulate(here, here.index_rate, 0, combine=False)
        cells = (one.seconds, 4 * one.seconds, codes.seconds, index.seconds)
        lines.append(
            [f"{n:,}", *map(in_words, cells), f"{one.received / 1e6:.1f} MB", f"{one.again:,}"]
        )
    if markdown:
        print("|", " | ".join(head), "|")
        print("|", " | ".join(["---"] * len(head)), "|")
        for line in lines:
            print("|", " | ".join(line), "|")
        return
    table = Table(*head, title=f"{world.rows:,.0f} rows of {world.features} numbers")
    for line in lines:
        table.add_row(*line)
    console = Console()
    console.print(table)
    chunk = world.chunk_rows * world.features
    console.print(
        f"{world.n_chunks:,} chunks of {world.chunk_rows:,} rows; a worker holds a chunk "
        f"({chunk * world.bytes_a_number / 1e6:.0f} MB), blocks of it as floats, and answers of "
        f"{world.answer_bytes / 1e6:.2f} MB: the driver, one of them"
    )


def in_words(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rows", type=float, default=1e9)
    add("--features", type=int, default=128)
    add("--bits", type=int, default=64)
    add("--workers", default="1,4,16,64,256,1024")
    add("--bytes-a-number", type=int, default=1, help="1: uint8; 4: float32")
    add("--pass-rate", type=float, default=6.5e5, help="rows a second of a k-means pass")
    add("--encode-rate", type=float, default=9.5e5, help="rows a second")
    add("--index-rate", type=float, default=5.4e4, help="rows a second")
    add("--disk", type=float, default=200e6, help="bytes a second that a worker reads")
    add("--network", type=float, default=1e9, help="bytes a second between workers")
    add("--scheduler", type=float, default=5e-4, help="seconds of the scheduler a task")
    add("--deaths", type=float, default=0.01, help="of a worker, an hour")
    add("--markdown", action="store_true")
    given = vars(parser.parse_args())
    markdown, workers = given.pop("markdown"), [int(n) for n in given.pop("workers").split(",")]
    table_of(World(**given, workers=1), workers, markdown=markdown)


if __name__ == "__main__":
    main()
