"""``densehash verify``: checks whether any byte of an index or a hasher has changed."""

# What a command needs is imported when it runs: `densehash --help` needs none of it.
# ruff: noqa: PLC0415

from __future__ import annotations

from densehash.cli.app import app, examples
from densehash.cli.arguments import IndexPath
from densehash.cli.cluster import LocalCluster, Scheduler, workers
from densehash.cli.text import say

__all__: list[str] = []


@app.command("verify", epilog=examples("densehash verify photos.dh"))
def _verify(
    index: IndexPath, scheduler: Scheduler = None, local_cluster: LocalCluster = None
) -> None:
    """Compare every file of an index with its checksum.

    If files are wrong, all of them are named on stderr, and the exit code is 2. If the index has
    shards, workers compare them; without workers, threads of this process do.
    """
    from densehash.cli.opening import open_any
    from densehash.hashers import Hasher
    from densehash.index import Index
    from densehash.store import verify
    from densehash.store.manifest import MANIFEST, decode, entries_of

    verify(index, verbose=True)
    opened = open_any(index)  # files that are correct must also fit together
    if isinstance(opened, (Index, Hasher)):
        manifest = decode((index / MANIFEST).read_bytes(), index / MANIFEST)
        n_files = 1 + sum(1 for _ in entries_of(manifest.content))
        say(f"all {n_files} files are whole")
        return
    with workers(scheduler, local_cluster) as told:
        opened.verify(verbose=0 if told is None else told.verbose)
    say(f"all {len(opened.shards)} shards are whole")
