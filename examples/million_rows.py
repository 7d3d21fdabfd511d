# ---
# jupytext:
#   formats: py:percent
# kernelspec:
#   display_name: Python 3
#   language: python
#   name: python3
# ---

# %% [markdown]
# # A million rows on a laptop
#
# This page makes a million vectors of 64 numbers, 256 MB. They lie in clusters, as real vectors do.
# The index is built from a file and lies on the disk; memory holds a part of it at a time.

# %%
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from densehash import Index, truth
from densehash.datasets import open_vectors

ROWS = 1_000_000
FEATURES = 64

# %% [markdown]
# ## A file of vectors
#
# It is written block by block, so it could be larger than memory.

# %%
folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
centers = rng.standard_normal((2_000, FEATURES), dtype=np.float32)


def draw(n: int) -> NDArray[np.float32]:
    """Rows around the centres, float32 (n, FEATURES)."""
    noise = rng.standard_normal((n, FEATURES), dtype=np.float32)
    return centers[rng.integers(len(centers), size=n)] + 0.5 * noise


file = np.lib.format.open_memmap(
    folder / "rows.npy", mode="w+", dtype=np.float32, shape=(ROWS, FEATURES)
)
for first in range(0, ROWS, 100_000):
    block = file[first : first + 100_000]
    block[:] = draw(len(block))
file.flush()

# %% [markdown]
# ## Build
#
# On the command line this is `densehash build rows.npy -o rows.dh`. With `path`, the index is made
# in that folder and returned opened.

# %%
start = time.perf_counter()
rows = open_vectors(folder / "rows.npy")
index = Index.build(rows, path=folder / "rows.dh", random_state=0)
print(f"{time.perf_counter() - start:.1f} s", index)

size = sum(path.stat().st_size for path in (folder / "rows.dh").rglob("*") if path.is_file())
print(f"{size / ROWS:.0f} bytes a row on disk, {FEATURES * 4} of them the vector itself")

# %% [markdown]
# ## Search
#
# Opening maps the files; nothing is read before it is needed.

# %%
start = time.perf_counter()
index = Index.open(folder / "rows.dh")
print(f"opened in {1000 * (time.perf_counter() - start):.1f} ms")

queries = draw(500)
index.search(queries, k=10)  # the first search reads the files
for recall in (0.9, 0.97, 0.99):
    start = time.perf_counter()
    hits = index.search(queries, k=10, recall=recall)
    seconds = time.perf_counter() - start
    compared = hits.effort.vectors.mean() if hits.effort else 0
    print(
        f"asked for recall {recall}: {len(queries) / seconds:,.0f} queries a second, "
        f"{compared:.0f} of {ROWS:,} vectors compared for each"
    )

# %% [markdown]
# ## Check
#
# `truth.nearest` finds the true neighbours of some queries by comparing every row.

# %%
near = truth.nearest(queries[:100], rows, k=10)
for recall in (0.9, 0.97, 0.99):
    hits = index.search(queries[:100], k=10, recall=recall)
    found = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(hits.ids, near, strict=True)])
    print(f"asked for recall {recall}: found {found:.3f}")

# %% [markdown]
# Around the centre of a cluster, all rows are about equally near. So this data is harder than most.
# `densehash compare vectors.npy` says what to expect for your own vectors.
