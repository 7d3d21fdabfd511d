# ---
# jupytext:
#   formats: py:percent
# kernelspec:
#   display_name: Python 3
#   language: python
#   name: python3
# ---

# %% [markdown]
# # A cluster
#
# Here, two processes on this machine act as a cluster; with the address of a Dask scheduler, the
# same lines run on many machines. You need `pip install 'densehash[dask]'`.

# %%
import tempfile
from pathlib import Path

import numpy as np

from densehash import DSH, Index
from densehash.distributed import ShardedIndex, local_cluster, open_dask

ROWS = 50_000

# %% [markdown]
# ## Rows that all workers can read
#
# Each chunk of the file becomes a task, and later a shard.

# %%
folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
centers = rng.standard_normal((500, 32), dtype=np.float32)
X = centers[rng.integers(500, size=ROWS)] + 0.5 * rng.standard_normal((ROWS, 32), dtype=np.float32)
np.save(folder / "rows.npy", X)

# %% [markdown]
# ## Learn, encode, build, search
#
# A hasher that learns on the cluster has the same bytes as one that learns in this process. A
# sharded index is a folder of ordinary index folders.


# %%
def work() -> None:
    """Everything that needs the cluster."""
    with local_cluster(2):
        rows = open_dask(folder / "rows.npy", chunk_rows=16_384)
        print(rows.shape, "in", len(rows.chunks[0]), "chunks")

        hasher = DSH(64, random_state=0).fit(rows)
        same = DSH(64, random_state=0).fit(X)
        print("the same planes as on one machine:", np.array_equal(hasher.planes_, same.planes_))
        codes = hasher.transform(rows)  # a dask array, not computed yet
        print("codes:", codes.shape, codes[:2].compute().tolist())

        index = ShardedIndex.build(rows, folder / "rows.shards", random_state=0)
        hits = index.search(X[:200], k=10)
        print(
            len(index), "rows in", len(index.shards), "shards; nothing missing:", not hits.missing
        )

        alone = Index.build(X, random_state=0).search(X[:200], k=10)
        pairs = zip(hits.ids, alone.ids, strict=True)
        share = np.mean([len(set(a) & set(b)) / 10 for a, b in pairs])
        print(f"{share:.3f} of the neighbours are those of one index of all rows")


if __name__ == "__main__":  # workers are processes, which import a script that starts them
    work()

# %% [markdown]
# Without a cluster, `ShardedIndex.open(folder).search(...)` searches the same folder from one
# process. [More rows than memory](../docs/scaling.md) says what travels, what happens when a worker
# dies, and what a billion rows would take.
