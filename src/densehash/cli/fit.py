"""``densehash fit``: makes a hasher that learns from a file of vectors."""

# What a command needs is imported when it runs: `densehash --help` needs none of it.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from densehash.cli.app import app, examples
from densehash.cli.arguments import AsJson, Bits, Key, Method
from densehash.cli.text import facts

__all__: list[str] = []


@app.command(
    "fit",
    epilog=examples(
        "densehash fit vectors.npy -o model.dh",
        "densehash fit base.fvecs -o model.dh --hasher dsh --bits 64",
        "densehash fit table.parquet --key embedding -o model.dh --hasher refined --force",
    ),
)
def _fit(
    vectors: Annotated[Path, typer.Argument(help="A file of vectors.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder of the hasher.")],
    hasher: Method = "auto",
    bits: Bits = None,
    key: Key = None,
    seed: Annotated[int, typer.Option(help="The seed of the planes.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing hasher.")] = False,
    as_json: AsJson = False,
) -> None:
    """Learn a hasher from a file of vectors; densehash encode makes codes with it.

    The folder appears only when it is complete. If it replaces a hasher, the old one stays until
    then.
    """
    from densehash.cli.places import check_folder_place
    from densehash.datasets import open_vectors
    from densehash.index.building import fitted
    from densehash.store import Store
    from densehash.store.manifest import HASHER

    check_folder_place(out, HASHER, force=force)
    X = open_vectors(vectors, key=key)
    begun = time.perf_counter()
    learnt = fitted(hasher, X, n_bits=bits, random_state=seed, verbose=1)
    learnt.set_params(verbose=0).save(out)
    about = {
        "rows": len(X),
        "features": learnt.n_features_in_,
        "hasher": type(learnt).__name__,
        "bits": learnt.n_bits_,
        "bytes_on_disk": Store.open(out, form=HASHER).n_bytes,
        "seconds": time.perf_counter() - begun,
    }
    if as_json:
        typer.echo(json.dumps(about, indent=2))
        return
    facts(
        [
            ("model", str(out)),
            ("rows", f"{about['rows']:,}"),
            ("features", f"{about['features']:,}"),
            ("hasher", f"{about['hasher']}, {about['bits']} bits"),
            ("bytes on disk", f"{about['bytes_on_disk']:,}"),
            ("seconds", f"{about['seconds']:,.1f}"),
        ]
    )
