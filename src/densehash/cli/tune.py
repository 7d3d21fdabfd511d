"""``densehash tune``: measures how far a search must look for a recall."""

# What a command needs is imported when it runs: `densehash --help` needs none of it.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densehash.cli.app import app, examples
from densehash.cli.arguments import AsJson, IndexPath, Key, Metric, Threads
from densehash.cli.text import aligned, say

if TYPE_CHECKING:
    from densehash.index import Setting

__all__: list[str] = []


@app.command(
    "tune",
    epilog=examples(
        "densehash tune photos.dh queries.npy",
        "densehash tune photos.dh queries.npy --recall 0.99 -k 100 --json",
    ),
)
def _tune(
    index: IndexPath,
    queries: Annotated[
        Path, typer.Argument(help="A file of vectors: some hundred that are not in the index.")
    ],
    recall: Annotated[
        float, typer.Option(help="The share of the nearest rows to find, at most 1.")
    ] = 0.95,
    k: Annotated[int, typer.Option("-k", help="How many neighbours.")] = 10,
    metric: Metric = None,
    threads: Threads = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Measure how far a search must look for a recall, and use that setting from now on.

    With codes, it measures candidates and probes. The fastest setting that reaches the recall is
    kept in the index. If none does, a message says the best recall, and nothing changes.
    """
    from densehash.datasets import open_vectors
    from densehash.index import Index

    opened = Index.open(index)
    Q = open_vectors(queries, key=key)
    asked: Any = {"metric": metric, "n_threads": threads}  # the index checks the metric
    found = opened.tune(Q, recall=recall, k=k, verbose=1, **asked)
    if as_json:
        measured = [setting._asdict() for setting in found.measured]
        typer.echo(json.dumps({**found._asdict(), "measured": measured}, indent=2))
        return
    header = ("candidates", "probes", "recall", "queries a second")
    say("\n".join(aligned(header, [_cells(setting) for setting in found.measured])))
    told = [
        f"{n:,} {name}"
        for n, name in ((found.candidates, "candidates"), (found.probes, "probes"))
        if n is not None
    ]
    if opened.recall is not None:
        say(f"searches now find {found.recall:.3f} of the nearest rows")
    else:
        say(f"searches now take {' and '.join(told) or 'all rows'}: a recall of {found.recall:.3f}")


def _cells(setting: Setting) -> tuple[str, ...]:
    return (
        *("-" if n is None else f"{n:,}" for n in (setting.candidates, setting.probes)),
        f"{setting.recall:.3f}",
        f"{setting.queries_per_second:,.0f}",
    )
