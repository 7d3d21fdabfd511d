"""Workers that commands use: of a cluster that runs, or of processes made for the command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Annotated

import typer

from densehash import distributed
from densehash.errors import InputError

__all__ = ["workers"]

Scheduler = Annotated[
    str | None,
    typer.Option(help="The address of a Dask scheduler, tcp://...: its workers do the work."),
]
LocalCluster = Annotated[
    int | None, typer.Option(help="So many processes of this machine, as a Dask cluster.")
]


@contextmanager
def workers(scheduler: str | None, local_cluster: int | None) -> Iterator[int | None]:
    """Workers for a ``with`` block.

    Yields
    ------
    None where no workers were asked for; otherwise how much to say on the way: Dask's own bars
    where somebody is looking, and nothing in a pipe
    """
    if scheduler is not None and local_cluster is not None:
        raise InputError("choose one of --scheduler and --local-cluster")
    if scheduler is not None:
        there = distributed.connect(scheduler)
    elif local_cluster is not None:
        there = distributed.local_cluster(local_cluster)
    else:
        yield None
        return
    # Dask prints its bars to stdout, which is for results.
    with there, redirect_stdout(sys.stderr):
        yield int(sys.stderr.isatty())
