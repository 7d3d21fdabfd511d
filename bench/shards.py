"""Measures what shards cost: searches one index and the same rows in shards, in one run.

    python bench/shards.py [--rows N] [--shards N] [--queries N] [--turns N] [--sketch NAME]
                           [--folder DIR]

SIFT rows (uint8, 128 features) are indexed twice, as one folder and as shards, both with default
settings. Both answer the same queries, all in one call, in turns, without a cluster. The least time
of each counts, and the least CPU time, which depends less on other programs. Recall is the share of
the 10 nearest rows that were found.

The vectors are sift.npy in the folder named by DENSEHASH_DATA, or in ../shared/data.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from data import data_folder

from densehash import Index
from densehash.distributed import ShardedIndex
from densehash.truth import nearest

K = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--shards", type=int, default=25)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--sketch", default="auto")
    parser.add_argument("--folder", type=Path, help="where both are kept; a temporary one without")
    told = parser.parse_args()
    folder = data_folder()
    if folder is None:
        parser.error("sift.npy is not there: name its folder by DENSEHASH_DATA")
    vectors = np.load(folder / "sift.npy", mmap_mode="r")
    if told.rows + told.queries > len(vectors):
        parser.error(f"sift.npy has {len(vectors):,} rows: too few")
    X, Q = np.array(vectors[: told.rows]), np.array(vectors[len(vectors) - told.queries :])
    with tempfile.TemporaryDirectory() as temporary:
        where = told.folder or Path(temporary)
        where.mkdir(exist_ok=True)
        one, many = indexes(X, where, told.shards, told.sketch)
        compare(one, many, X, Q, told.turns)


def indexes(X: Any, where: Path, n_shards: int, sketch: Any) -> tuple[Index, ShardedIndex]:
    """One index, and shards; made if they are missing."""
    one, many = where / f"one-{sketch}.dh", where / f"shards-{sketch}"
    if not one.exists():
        seconds, _ = timed(lambda: Index.build(X, path=one, sketch=sketch, random_state=0))
        print(f"one index: built in {seconds:.1f} s")
    if not many.exists():
        chunks = da.from_array(X, chunks=(-(-len(X) // n_shards), X.shape[1]))
        seconds, _ = timed(lambda: ShardedIndex.build(chunks, many, sketch=sketch, random_state=0))
        print(f"shards: built in {seconds:.1f} s")
    return Index.open(one), ShardedIndex.open(many)


def compare(whole: Index, sharded: ShardedIndex, X: Any, Q: Any, turns: int) -> None:
    true = nearest(Q.astype(np.float32), X, k=K, metric="l2")
    least = {"one": (np.inf, np.inf), "shards": (np.inf, np.inf)}
    searches: dict[str, Callable[[], Any]] = {
        "one": lambda: whole.search(Q, K),
        "shards": lambda: sharded.search(Q, K),
    }
    found = {name: search() for name, search in searches.items()}  # loads files into memory
    for _ in range(turns):
        for name, search in searches.items():
            begun = time.process_time()
            seconds, _ = timed(search)
            of_cpus = time.process_time() - begun
            least[name] = min(least[name][0], seconds), min(least[name][1], of_cpus)
    for name, index in (("one", whole), ("shards", sharded)):
        hits = found[name].ids[:, :, np.newaxis] == true[:, np.newaxis]
        recall = hits.any(axis=1).mean()
        wall, cpu = (f"{1e3 * seconds:.1f} ms" for seconds in least[name])
        print(f"{name:6}: {wall}, {cpu} of CPUs for {len(Q)} queries, recall {recall:.3f}")
        print(f"        {index}")
    wall, cpu = (f"{many / one:.2f}" for one, many in zip(*least.values(), strict=True))
    print(f"shards / one = {wall}, {cpu} of CPUs")


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    found = work()
    return time.perf_counter() - begun, found


if __name__ == "__main__":
    main()
