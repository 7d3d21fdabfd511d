"""Compares what an index and a Refined hasher find if they learn on a GPU and on the CPU.

    python bench/gpu_recall.py FILE [--metric l2] [--queries 1000] [--seeds 3] [--refined]

FILE is an .npy, or an .npz with one array, of real rows: the last rows are queries. Each index is
built with default settings, from a tensor and from an array; each Refined(DSH(64)) learns from the
same.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from densehash import DSH, Index, Refined, hamming
from densehash.metrics import mean_average_precision
from densehash.truth import nearest

K = 10
DEVICE = "cuda"


def rows_in(path: Path) -> Any:
    found = np.load(path)
    return found if path.suffix == ".npy" else found[found.files[0]]


def recall(index: Index, queries: Any, truth: Any) -> float:
    found = index.search(queries, K).ids
    return float(np.mean([np.isin(one, two).mean() for one, two in zip(truth, found, strict=True)]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--metric", default="l2")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--refined", action="store_true")
    told = parser.parse_args()
    every = rows_in(told.file)
    X, queries = every[: -told.queries], every[-told.queries :]
    if told.metric == "cosine":
        X = X.astype(np.float32)
    there = torch.from_numpy(X).to(DEVICE)
    print(f"{told.file.name}: {len(X):,} x {X.shape[1]} {X.dtype}, {told.metric}", flush=True)
    truth = nearest(queries, X, k=K, metric=told.metric)
    relevant = nearest(queries, X, k=100)
    for seed in range(told.seeds):
        for where, rows in (("GPU", there), ("CPU", X)):
            start = time.perf_counter()
            index = Index.build(rows, metric=told.metric, random_state=seed)
            taken = time.perf_counter() - start
            found = recall(index, queries, truth)
            print(f"index, seed {seed}, {where}: recall@10 {found:.4f}, {taken:.1f} s", flush=True)
        if not told.refined:
            continue
        for where, rows in (("GPU", there), ("CPU", X)):
            start = time.perf_counter()
            hasher = Refined(DSH(64), random_state=seed).fit(rows)
            taken = time.perf_counter() - start
            codes, asked = hasher.transform(X), hasher.transform(queries)
            precision = mean_average_precision(*hamming.histogram(asked, codes, relevant))
            print(
                f"Refined, seed {seed}, {where}: held-out loss {hasher.losses_.min():.4f}, MAP "
                f"{precision:.4f} of the 100 nearest, {taken:.1f} s",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
