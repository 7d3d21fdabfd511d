"""``densehash compare``: shows which method suits your vectors."""

# What a command needs is imported when it runs: `densehash --help` needs none of it.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from densehash.cli.app import app, examples

__all__: list[str] = []

_PEERS = ("faiss PQ", "faiss OPQ", "faiss RaBitQ")


@app.command(
    "compare",
    epilog=examples(
        "densehash compare vectors.npy",
        "densehash compare base.fvecs --queries query.fvecs --bits 64,128 --metric cosine",
        "densehash compare digits --methods dsh,itq --json",
    ),
)
def _compare(
    vectors: Annotated[
        str, typer.Argument(help="A file of vectors, or the name of a set: try digits.")
    ],
    bits: Annotated[str, typer.Option(help="Code lengths.")] = "32,64,128",
    queries: Annotated[
        Path | None,
        typer.Option(help="A file of queries; default: some rows, taken out of the vectors."),
    ] = None,
    metric: Annotated[str, typer.Option(help="l2, cosine or ip (inner product).")] = "l2",
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, as in lsh,dsh,itq; default: all hashers, and codes of faiss if it is "
            "installed."
        ),
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option(help="How many rows are re-ranked; default: a hundredth, 50 to 1000."),
    ] = None,
    n_queries: Annotated[int, typer.Option(help="How many queries at most.")] = 1000,
    rows: Annotated[int | None, typer.Option(help="Draw this many rows; default: all.")] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds; means are shown.")] = 1,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", "--column", help="An array or column inside the file, if it has several."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of results.")] = Path("densehash-compare"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
) -> None:
    """Build the index of your own vectors and say what it finds; compare codes and rankings.

    The index is the one that densehash build makes; the report shows its measured recall and the
    command that builds it. Codes of all methods are ranked by Hamming distance, by the query's
    margins and by estimates. They are compared with the sketch of signs and with faiss's PQ, OPQ
    and RaBitQ, all with the same number of bytes a row.

    The folder of results keeps all measurements: an interrupted run goes on where it stopped, and a
    second run measures nothing again.
    """
    from densehash.checks import check_integer
    from densehash.cli.output import (
        make_folder,
        open_records,
        parse_bits,
        parse_methods,
        show,
        write_page,
    )
    from densehash.datasets import load
    from densehash.paper import peers
    from densehash.paper.compare import (
        advice,
        build_commands,
        compare,
        comparison_page,
        comparison_table,
        ranking_table,
    )
    from densehash.paper.methods import SIGNS
    from densehash.paper.problem import Problem
    from densehash.paper.studies import Plan

    chosen = parse_methods(methods)
    if methods is None and peers.available():
        chosen += _PEERS
    plan = Plan(
        tuple(dict.fromkeys((*chosen, SIGNS))),
        parse_bits(bits),
        check_integer(seeds, "--seeds", 1, 1000),
        (),
    )
    nearness: Any = metric  # one of three words: Problem.of checks it
    problem = Problem.of(
        load(vectors, queries=queries, key=key),
        metric=nearness,
        n_queries=n_queries,
        most_rows=rows,
        verbose=True,
    )
    folder = make_folder(out)
    found = compare(problem, plan, open_records(folder), n_candidates=candidates, verbose=True)
    command = shlex.join(["densehash", *sys.argv[1:]])
    commands = build_commands(found, vectors, key)
    report = write_page(comparison_page(found, plan, command, commands), folder)
    if as_json:
        answer = {
            "set": problem.identity,
            "k": found.k,
            "candidates": found.n_candidates,
            "index": asdict(found.built),
            "build": commands,
            "lines": [asdict(line) for line in found.lines],
            "refused": found.refused,
            "advice": advice(found),
            "report": report and str(report),
        }
        typer.echo(json.dumps(answer, indent=2))
        return
    show(comparison_table(found))
    show(ranking_table(found, plan))
    first, *others = advice(found)
    for text in (first, *(f"    {line}" for line in commands), *others):
        typer.echo(text)
    for name, why in found.refused.items():
        typer.echo(f"left out: {name}: {why}")
    typer.echo(f"report   {report or 'none'}")
