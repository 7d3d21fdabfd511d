"""Measures what adding rows costs: segments, and bytes written for each byte added.

The sizes of what is added come in several orders. Then it measures what it costs to compare the
rows that a merge copies with their checksums.

python bench/adding.py
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from densehash.index import Index
from densehash.store.maps import check_unchanged

N_ADDS, MEAN, D = 300, 200, 16


def measure(sizes: list[int]) -> tuple[int, int, float]:
    """The largest and the last number of segments, and bytes written for each byte added."""
    rng = np.random.default_rng(0)
    with TemporaryDirectory() as folder:
        index = Index.build(
            rng.standard_normal((2, D), dtype=np.float32),
            kind="flat", hasher="lsh", n_bits=64, random_state=0, path=Path(folder, "a.dh"),
        )  # fmt: skip
        written, most, seen = 0, 0, set[str]()
        for n in sizes:
            index.add(rng.standard_normal((n, D), dtype=np.float32))
            files = {path.name: path.stat().st_size for path in Path(folder, "a.dh").glob("*.npy")}
            written += sum(size for name, size in files.items() if name not in seen)
            seen |= set(files)
            most = max(most, len(index.info()["segments"]))
        return most, len(index.info()["segments"]), written / (sum(sizes) * (4 * D + 8 + 8))


def check_and_merge() -> tuple[float, float, float]:
    """CPU seconds to compare 300,000 rows with their checksums and to merge them, and megabytes."""
    rng = np.random.default_rng(0)
    spent = []
    with TemporaryDirectory() as folder:
        path = Path(folder, "a.dh")
        X = rng.standard_normal((300_000, 128), dtype=np.float32)
        Index.build(X, kind="flat", hasher="lsh", n_bits=256, random_state=0, path=path)
        n_bytes = sum(file.stat().st_size for file in path.glob("*.npy"))
        for _ in range(5):
            index = Index.open(path)
            index.remove(index.ids[:1])
            start = time.process_time()
            for array in index._state.segments[0].arrays:
                check_unchanged(array)
            checked = time.process_time() - start
            start = time.process_time()
            index.compact()
            spent.append((checked, time.process_time() - start))
    return *np.min(spent, axis=0), n_bytes / 1e6


def main() -> None:
    rng = np.random.default_rng(1)
    falling = np.linspace(2 * MEAN, 1, N_ADDS).astype(int).tolist()
    orders = {
        "equal": [MEAN] * N_ADDS,
        "rising, 1 to 400": falling[::-1],
        "falling, 400 to 1": falling,
        "random, 1 to 400": rng.permutation(falling).tolist(),
        "60,000 at once, then 300 times 1": [N_ADDS * MEAN, *[1] * N_ADDS],
    }
    print("| sizes | most segments | in the end | bytes written a byte added |")
    print("| --- | ---: | ---: | ---: |")
    for name, sizes in orders.items():
        most, last, share = measure(sizes)
        print(f"| {name} | {most} | {last} | {share:.1f} |")
    checked, merged, megabytes = check_and_merge()
    print(
        f"\nA merge of {megabytes:.0f} MB takes {merged:.2f} s of CPU, of which {checked:.2f} s "
        f"({megabytes / checked / 1000:.1f} GB a second) compare them with their checksums."
    )


if __name__ == "__main__":
    main()
