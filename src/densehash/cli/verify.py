"""``densehash verify``: whether every byte of an index is what it was."""

from __future__ import annotations

from densehash.cli.app import app, examples
from densehash.cli.arguments import IndexPath
from densehash.cli.text import say
from densehash.index import Index
from densehash.store import verify
from densehash.store.manifest import MANIFEST, decode, entries_of

__all__: list[str] = []


@app.command("verify", epilog=examples("densehash verify photos.dh"))
def _verify(index: IndexPath) -> None:
    """Compare every file of an index with its checksum.

    If files are wrong, all are named on stderr, and the exit code is 2.
    """
    verify(index, verbose=True)
    Index.open(index)  # files that are whole must fit together, too
    manifest = decode((index / MANIFEST).read_bytes(), index / MANIFEST)
    n_files = 1 + sum(1 for _ in entries_of(manifest.content))
    say(f"all {n_files} files are whole")
