"""What adding rows costs: segments, and bytes written for each byte added, by order of sizes.

python bench/adding.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from densehash.index import Index

N_ADDS, MEAN, D = 300, 200, 16


def measure(sizes: list[int]) -> tuple[int, int, float]:
    """The most segments there were, those in the end, and bytes written for each byte added."""
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


if __name__ == "__main__":
    main()
