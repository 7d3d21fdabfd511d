"""Measures how fast the Hamming search is, against named peers; each row in one run.

    python bench/hamming.py [--quick] [--busy] [--markdown] [--json FILE]

There are a million codes, and k = 100 unless the row says otherwise. The contestants of a row take
turns, and the best time of each counts. The results of every peer are compared with ours. A number
under a peer's name says how many times as long as densehash it took for a pair of a code and a
query; "limit" is a bare loop that only xors, counts bits and adds (limit.cpp), which may be beaten.
On a machine that has other work, --busy measures processor time, and random codes on one thread
only.

Codes learned from real vectors need a folder with sift.npy, uint8 of shape (n, 128): the folder
named by DENSEHASH_DATA, or ../shared/data beside the checkout.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from contest import (
    Contestant,
    Found,
    Requirement,
    Result,
    Row,
    as_markdown,
    as_table,
    measure,
    needed_width,
)
from data import data_folder, noisy_rows
from peers import FAISS, LIMIT, OURS, PEERS, CannotTakePartError, Codes, Peer, Search
from rich.console import Console

from densehash import ITQ, LSH, hamming

K = 100
CALL = 256  # queries in one call
SMALL_CALLS = (1, 8, 32)  # queries in one call
ASKED = 32  # queries, in small calls
WIDTHS = (64, 128, 256, 512)
FASTER_THAN_FAISS = {64: 6.0, 128: 4.0, 256: 3.0, 512: 3.0}

notes = Console(stderr=True, highlight=False)


@cache
def note(line: str) -> None:
    """Print a note on stderr, once."""
    notes.print(line)


# Contestants


def contestants(
    peers: Iterable[Peer], calls: list[Codes], codes: Codes, *, k: int = K, n_threads: int = 1
) -> list[Contestant]:
    """The peers that can take part, each with these queries, one array per call."""
    return list(entered(peers, calls, codes, k, n_threads))


def entered(
    peers: Iterable[Peer], calls: list[Codes], codes: Codes, k: int, n_threads: int
) -> Iterator[Contestant]:
    for peer in peers:
        if peer.one_thread and n_threads > 1:
            continue
        try:
            search = peer.prepare(codes, k, n_threads)
        except CannotTakePartError as error:
            note(f"{peer.name} is left out: {error}")
            continue
        mine = some_of(calls, peer.one_in)
        pairs = sum(map(len, mine)) * len(codes)
        yield Contestant(peer.name, partial(ask, search, mine), pairs)


def some_of(calls: list[Codes], one_in: int) -> list[Codes]:
    """One in `one_in` queries: of the only call, or in the first of several calls."""
    if len(calls) > 1:
        return calls[: -(-len(calls) // one_in)]
    return [calls[0][: -(-len(calls[0]) // one_in)]]


def ask(search: Search, calls: list[Codes]) -> Found | None:
    answers = [answer for answer in map(search, calls) if answer is not None]
    return np.concatenate(answers) if answers else None


def renamed(contestant: Contestant, name: str) -> Contestant:
    return Contestant(name, contestant.work, contestant.items)


def small_calls(queries: Codes, size: int) -> list[Codes]:
    return [queries[first : first + size] for first in range(0, ASKED, size)]


# Rows


def rows_of_one_thread(n: int) -> Iterator[Row]:
    for n_bits in WIDTHS:
        yield from (row for row in rows_of_width(n, n_bits) if row.n_threads == 1)


def all_rows(n: int, data: Path | None) -> Iterator[Row]:
    for n_bits in WIDTHS:
        yield from rows_of_width(n, n_bits)
    yield from histogram_rows(n)
    for n_bits, k in ((64, K), (64, 1000), (256, K)):
        yield from rows_of_worst_order(n, n_bits, k)
    yield row_of_duplicates(n)
    if data is None:
        note("codes of real vectors are left out: no sift.npy in the folder DENSEHASH_DATA")
    else:
        yield from learned_rows(n, data)


def rows_of_width(n: int, n_bits: int) -> Iterator[Row]:
    rng = np.random.default_rng(n_bits)
    codes, queries = random_codes(rng, n, n_bits), random_codes(rng, CALL, n_bits)
    need = Requirement("faiss", FASTER_THAN_FAISS[n_bits])
    needs = (need, Requirement("limit", 1 / 2)) if n_bits == 64 else (need,)
    work = f"{CALL} queries a call"
    one = contestants([OURS, *PEERS], [queries], codes)
    yield Row(work, n_bits, 1, one, needs)

    two = contestants([OURS, *PEERS], [queries], codes, n_threads=2)
    two.append(renamed(one[0], "one thread"))
    yield Row(work, n_bits, 2, two, (Requirement("one thread", 1.7),))

    for size in SMALL_CALLS:
        calls = small_calls(queries, size)
        work = "1 query a call" if size == 1 else f"{size} queries a call"
        for peers, n_threads in ((PEERS, 1), ((FAISS,), 2)):
            few = contestants([OURS, *peers], calls, codes, n_threads=n_threads)
            yield Row(work, n_bits, n_threads, few, (Requirement("faiss", 2),), n_calls=len(calls))


def histogram_rows(n: int) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    codes, queries = random_codes(rng, n, 64), random_codes(rng, CALL, 64)
    anyhow = rng.integers(0, n, (CALL, n // 50))
    for order, relevant in (("rising", np.sort(anyhow, axis=1)), ("in any order", anyhow)):

        def count(relevant: npt.NDArray[np.int64] = relevant) -> None:
            hamming.histogram(queries, codes, relevant, n_threads=1)

        both = [
            Contestant("densehash", count, CALL * n),
            renamed(contestants([OURS], [queries], codes)[0], "top_k"),
        ]
        work = f"histogram, 2% relevant, {order}"
        yield Row(work, 64, 1, both, (Requirement("top_k", 1 / 3),))


def rows_of_worst_order(n: int, n_bits: int, k: int) -> Iterator[Row]:
    """Codes that come nearer and nearer to the queries, against the same codes shuffled."""
    rng = np.random.default_rng(k)
    centre = random_codes(rng, 1, n_bits)
    codes = random_codes(rng, n, n_bits)
    falling = codes[np.argsort(-hamming.distances(centre, codes)[0].astype(int), kind="stable")]
    queries = np.repeat(centre, CALL, axis=0)
    queries[:, 0] ^= (1 << rng.integers(0, 8, CALL)).astype(np.uint8)  # one bit of difference
    for work, calls in (
        (f"worst order, k = {k}, {CALL} queries a call", [queries]),
        (f"worst order, k = {k}, 1 query a call", small_calls(queries, 1)),
    ):
        order = contestants([OURS, FAISS], calls, falling, k=k)
        order.append(renamed(contestants([OURS], calls, codes, k=k)[0], "random order"))
        need = Requirement("random order", 1 / 3)
        yield Row(work, n_bits, 1, order, (need,), n_calls=len(calls))


def row_of_duplicates(n: int) -> Row:
    rng = np.random.default_rng(1)
    codes = random_codes(rng, 1000, 64)[rng.integers(0, 1000, n)]
    queries = random_codes(rng, CALL, 64)
    need = Requirement("faiss", FASTER_THAN_FAISS[64])
    both = contestants([OURS, FAISS], [queries], codes)
    return Row(f"1000 distinct codes, {CALL} queries a call", 64, 1, both, (need,))


def learned_rows(n: int, folder: Path) -> Iterator[Row]:
    """Codes of SIFT descriptors."""
    vectors = np.load(folder / "sift.npy", mmap_mode="r")
    base = noisy_rows(vectors[:-10_000], n)
    asked = np.array(vectors[-CALL:])
    sample = base[:: max(1, n // 20_000)]
    for n_bits in (64, 128, 256):
        for hasher in (LSH(n_bits, random_state=0), ITQ(n_bits, n_iter=20, random_state=0)):
            hasher.fit(sample)
            codes, queries = hasher.transform(base), hasher.transform(asked)
            need = Requirement("faiss", FASTER_THAN_FAISS[n_bits])
            all_of_them = contestants([OURS, LIMIT, FAISS], [queries], codes)
            work = f"SIFT, {type(hasher).__name__}, {CALL} queries a call"
            yield Row(work, n_bits, 1, all_of_them, (need,))


# Codes


def random_codes(rng: np.random.Generator, n: int, n_bits: int) -> Codes:
    return rng.integers(0, 256, (n, n_bits // 8), dtype=np.uint8)


# The run


def machine() -> dict[str, object]:
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "instruction_set": hamming.instruction_set(),
        "versions": dict(versions()),
    }


def versions() -> Iterator[tuple[str, str]]:
    for name in ("densehash", "faiss-cpu", "usearch", "numpy"):
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def title(n: int) -> str:
    about = machine()
    return (
        f"Hamming search, {n:,} codes, k = {K}: {about['machine']}, {about['cpus']} CPUs, "
        f"{about['instruction_set']}"
    )


def caption() -> str:
    scaled = ", ".join(f"{peer.name} {CALL // peer.one_in}" for peer in PEERS if peer.one_in > 1)
    shown = ", ".join(f"{name} {version}" for name, version in versions())
    return (
        "Under a peer's name: its time divided by ours, for a pair of a "
        f"code and a query. Of the {CALL} queries some peers were asked fewer: {scaled}. {shown}."
    )


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Hamming search against its peers.")
    parser.add_argument("--quick", action="store_true", help="100,000 codes, fewer repetitions")
    parser.add_argument("--busy", action="store_true", help="processor time, one thread only")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", metavar="FILE", help="write the records there; - prints them")
    return parser.parse_args()


def write_json(target: str, n: int, results: list[Result]) -> None:
    records = {**machine(), "codes": n, "k": K, "rows": [result.record() for result in results]}
    text = json.dumps(records, indent=2)
    if target == "-":
        sys.stdout.write(text + "\n")
    else:
        Path(target).write_text(text + "\n", encoding="utf-8")


def main() -> None:
    asked = options()
    n, repetitions, budget_s = (100_000, 3, 0.5) if asked.quick else (1_000_000, 9, 2.5)
    peers = [peer.name for peer in PEERS]
    results = []
    rows = rows_of_one_thread(n) if asked.busy else all_rows(n, data_folder())
    clock = time.process_time if asked.busy else time.perf_counter
    for row in rows:
        with notes.status(f"{row.work}, {row.n_bits} bits, {row.n_threads} thread(s)"):
            results.append(measure(row, repetitions, budget_s, clock))
    if asked.json:
        write_json(asked.json, n, results)
    if asked.json == "-":
        return
    if asked.markdown:
        sys.stdout.write(as_markdown(results, peers, title(n), caption(), "pair") + "\n")
    else:
        table = as_table(results, peers, title(n), caption(), "pair")
        Console(width=needed_width(table)).print(table)


if __name__ == "__main__":
    main()
