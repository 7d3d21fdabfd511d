"""``densehash paper``: makes every figure and table of the paper, on any vectors."""

# What a command needs is imported when it runs: `densehash --help` needs none of it.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from densehash.cli.app import app, examples

__all__: list[str] = []

# The same as in densehash.paper.studies (tested), which is imported only when the command runs.
BITS = "8,12,16,24,32,48,64,96,128"
PARTS = "2, 3, times, p, alpha, r, cost, beyond, peers"
QUICK_ROWS = 10_000
QUICK_QUERIES = 300


@app.command(
    "paper",
    epilog=examples(
        "densehash paper --quick",
        "densehash paper --data sift1m --data mine.npy --bits 16,32,64 --out results",
    ),
)
def _paper(
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="A set's name or a file of vectors; may be given several times. Without it, the "
            "built-in sets digits and patches."
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help=f"Take {QUICK_ROWS:,} rows, {QUICK_QUERIES} queries, 2 seeds and 5 code lengths.",
        ),
    ] = False,
    out: Annotated[Path, typer.Option(help="The folder of results.")] = Path("densehash-paper"),
    bits: Annotated[str | None, typer.Option(help=f"Code lengths; default {BITS}.")] = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods, as in lsh,dsh,itq; default: all.")
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option(help=f"Parts of the paper: {PARTS}; default: all."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds; default 3.")] = None,
    n_queries: Annotated[
        int | None, typer.Option(help="How many queries at most; default 1000.")
    ] = None,
    metric: Annotated[str, typer.Option(help="l2, cosine or ip (inner product).")] = "l2",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
) -> None:
    """Make every figure and table of the paper, and a report of them, on any vectors.

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
    from densehash.paper.claims import claims_table
    from densehash.paper.methods import PEERS
    from densehash.paper.pages import paper_page
    from densehash.paper.problem import Problem
    from densehash.paper.runner import run_plan
    from densehash.paper.studies import QUICK, Plan, check_parts
    from densehash.paper.tables import map_table

    plan = QUICK if quick else Plan()
    if methods is not None:
        plan = replace(plan, methods=parse_methods(methods))
    elif peers.available():
        plan = replace(plan, methods=plan.methods + PEERS)
    if bits is not None:
        plan = replace(plan, bits=parse_bits(bits))
    if parts is not None:
        plan = replace(plan, parts=check_parts(parts.split(",")))
    if seeds is not None:
        plan = replace(plan, n_seeds=check_integer(seeds, "--seeds", 1, 1000))
    if n_queries is not None:
        check_integer(n_queries, "--n-queries", 1)
    nearness: Any = metric  # one of three words: Problem.of checks it
    problems: list[Problem] = []
    for name in dict.fromkeys(data or ["digits", "patches"]):
        found = load(name)
        same = sum(each.name.partition(" (")[0] == found.name for each in problems)
        problems.append(
            Problem.of(
                replace(found, name=f"{found.name} ({same + 1})") if same else found,
                metric=nearness,
                n_queries=n_queries or (QUICK_QUERIES if quick else 1000),
                most_rows=QUICK_ROWS if quick else None,
                verbose=True,
            )
        )
    folder = make_folder(out)
    records = open_records(folder)
    every = [run_plan(problem, plan, records, verbose=True) for problem in problems]
    command = shlex.join(["densehash", *sys.argv[1:]])
    about = {problem.name: problem.description for problem in problems}
    page = paper_page(every, plan, command=command, descriptions=about)
    report = write_page(page, folder)
    tables = [map_table(results, plan) for results in every]
    claims = claims_table(every, plan)
    if as_json:
        answer = {
            "report": report and str(report),
            "records": str(folder / "records.jsonl"),
            "sets": [results.identity for results in every],
            "mean_average_precision": {
                results.identity["set"]: {
                    row[0]: dict(zip(map(str, plan.bits), row[1:], strict=False))
                    for row in table.rows
                }
                for results, table in zip(every, tables, strict=True)
            },
            "claims": claims and {row[0]: row[1:] for row in claims.rows},
        }
        typer.echo(json.dumps(answer, indent=2))
        return
    for table in (*tables, claims):
        if table is not None and table.rows:
            show(table)
    typer.echo(f"report   {report or 'none'}\nrecords  {folder / 'records.jsonl'}")
