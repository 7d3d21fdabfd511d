"""Uses everything that needs no extra, once: for a wheel in an otherwise empty environment.

python tests/smoke.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from densehash import Index, hamming, load_hasher
from densehash.bits import pack, unpack
from densehash.hashers.registry import HASHERS, hasher_named
from densehash.index import HashingNeighbors

RNG = np.random.default_rng(0)
CENTERS = RNG.normal(size=(20, 32))
X = (CENTERS[RNG.integers(0, 20, 1100)] + 0.3 * RNG.normal(size=(1100, 32))).astype(np.float32)
BASE, QUERIES = X[:1000], X[1000:]
TRUTH = ((QUERIES[:, None, :] - BASE[None]) ** 2).sum(axis=2).argmin(axis=1)


def check_hamming() -> None:
    bits = RNG.random((300, 70)) < 0.5
    codes = pack(bits)
    assert (unpack(codes, 70) == bits).all()
    expected = (bits[:9, None, :] != bits[None]).sum(axis=2)
    order = np.argsort(expected, axis=1, kind="stable")[:, :10]
    for name in hamming.instruction_sets():
        os.environ["DENSEHASH_SIMD"] = name
        distances, indices = hamming.top_k(codes[:9], codes, k=10)
        assert (indices == order).all(), name
        assert (distances == np.take_along_axis(expected, order, axis=1)).all(), name
        assert (hamming.distances(codes[:9], codes) == expected).all(), name
        assert hamming.within(codes[:9], codes, radius=30)[0][-1] == (expected <= 30).sum(), name
        assert (hamming.histogram(codes[:9], codes, n_bits=70).sum(axis=1) == 300).all(), name
    del os.environ["DENSEHASH_SIMD"]


def check_hashers(folder: Path) -> None:
    for name in HASHERS:
        path = folder / name
        options = {"n_steps": 20} if name == "Refined" else {}
        hasher = hasher_named(name, 16, random_state=0, **options)
        codes = hasher.fit_transform(BASE)
        assert codes.shape == (1000, 2), path.name
        assert (pack(hasher.project(BASE) >= 0) == codes).all(), path.name
        hasher.save(path)
        assert (load_hasher(path).transform(BASE) == codes).all(), path.name


def check_index(folder: Path) -> None:
    options: Any
    for options in (("auto", "auto"), ("flat", "codes"), ("grouped", "signs"), ("multi", "codes")):
        kind, sketch = options
        path = folder / f"{kind}.dh"
        index = Index.build(BASE, random_state=0, kind=kind, sketch=sketch)
        assert (index.search(QUERIES, k=10).ids[:, 0] == TRUTH).mean() > 0.9, options
        index.save(path)
        index = Index.open(path)
        index.add(QUERIES)
        assert (index.search(QUERIES, k=1).ids[:, 0] == np.arange(1000, 1100)).all(), options
        index.remove(range(1000, 1100))
        index.compact()
        index.verify()
        assert len(Index.open(path)) == 1000, options
    graph = HashingNeighbors(n_neighbors=3, random_state=0).fit(BASE).transform(QUERIES)
    assert graph.shape == (100, 1000)


def check_commands(folder: Path) -> None:
    np.save(folder / "base.npy", BASE)
    np.save(folder / "queries.npy", QUERIES)
    for line in (
        "--help",
        "--version",
        "info",
        "build base.npy -o base.dh --sketch codes",
        "search base.dh queries.npy -k 3 -o found.npz",
        "search base.dh queries.npy --json",
        "info base.dh",
        "verify base.dh",
        "tune base.dh queries.npy",
        "add base.dh queries.npy",
        "remove base.dh 1000 1001",
        "compact base.dh",
        "fit base.npy -o model.dh --hasher itq --bits 32",
        "encode base.npy --hasher model.dh -o codes.npy",
    ):
        command = Path(sysconfig.get_path("scripts"), "densehash")
        done = subprocess.run(
            [command, *line.split()], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"densehash {line}: {done.stderr}"
    with np.load(folder / "found.npz") as found:
        assert (found["ids"][:, 0] == TRUTH).mean() > 0.9
    assert (np.load(folder / "codes.npy") == load_hasher(folder / "model.dh").transform(BASE)).all()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_hamming()
        check_hashers(Path(folder))
        check_index(Path(folder))
        check_commands(Path(folder))
    sys.stdout.write(f"the smoke test passed, by {hamming.instruction_set()}\n")


if __name__ == "__main__":
    main()
