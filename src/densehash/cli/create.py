"""``densehash create``: makes an empty index, which ``densehash add`` fills."""

# What a command needs is imported when it runs: `densehash --help` needs none of it.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from densehash.cli.app import app, examples
from densehash.cli.arguments import (
    AsJson,
    Force,
    Groups,
    GroupsARow,
    KeepVectors,
    Kind,
    Method,
    OwnMetric,
    Seed,
    Sketch,
    SketchBits,
    Tables,
    vectors_kept,
)
from densehash.cli.info import describe, in_words
from densehash.cli.text import facts

__all__: list[str] = []


@app.command(
    "create",
    epilog=examples(
        "densehash create photos.dh --dim 768 --metric cosine",
        "densehash create photos.dh --dim 128 --learn-at 50000 --keep-vectors float16",
    ),
)
def _create(
    index: Annotated[Path, typer.Argument(help="The folder of the index.")],
    dim: Annotated[int, typer.Option(help="Features of a vector.")],
    metric: OwnMetric = "l2",
    learn_at: Annotated[
        int | None, typer.Option(help="With how many rows the index learns; default 8,192.")
    ] = None,
    sketch: Sketch = "auto",
    hasher: Method = "auto",
    bits: SketchBits = None,
    kind: Kind = "auto",
    keep_vectors: KeepVectors = "own",
    groups: Groups = None,
    groups_a_row: GroupsARow = None,
    tables: Tables = None,
    seed: Seed = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Make an empty index; densehash add and upsert add rows.

    Until there are enough rows to learn from, a search compares every row. The first rows decide
    whether ids are numbers or strings, the type of the vectors and, by --payload of add, what is
    kept beside them. All other options are those of densehash build; the index uses them when it
    learns.
    """
    from densehash.cli.places import check_folder_place
    from densehash.index import Index
    from densehash.store.manifest import INDEX

    kept = vectors_kept(keep_vectors)
    check_folder_place(index, INDEX, force=force)
    words: Any = {"metric": metric, "sketch": sketch, "kind": kind, "keep_vectors": kept}
    words |= {} if learn_at is None else {"learn_at": learn_at}
    made = Index.create(
        dim,
        **words,
        hasher=hasher,
        n_bits=bits,
        n_groups=groups,
        groups_a_row=groups_a_row,
        n_tables=tables,
        random_state=seed,
        path=index,
    )
    about = describe(made)
    if as_json:
        typer.echo(json.dumps(about, indent=2))
        return
    said = {"features", "sketch", "metric"}
    facts([("index", str(index)), *(one for one in in_words(about) if one[0] in said)])
