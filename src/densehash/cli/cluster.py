"""Workers for commands: of a running cluster, or processes started for the command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Annotated, NamedTuple

import typer

from densehash import distributed
from densehash.errors import InputError
from densehash.progress import shows_bars

__all__ = ["Workers", "workers"]

Scheduler = Annotated[
    str | None,
    typer.Option(help="The address of a Dask scheduler, tcp://...: its workers do the work."),
]
LocalCluster = Annotated[
    int | None, typer.Option(help="Start this many processes on this machine as a Dask cluster.")
]


class Workers(NamedTuple):
    """The workers that do the work.

    Attributes
    ----------
    n_threads : threads of all workers
    verbose : 1 shows Dask's progress bars; 0 if stderr is not a terminal
    """

    n_threads: int
    verbose: int


@contextmanager
def workers(scheduler: str | None, local_cluster: int | None) -> Iterator[Workers | None]:
    """Workers for a ``with`` block; None if both arguments are None."""
    if scheduler is not None and local_cluster is not None:
        raise InputError("choose one of --scheduler and --local-cluster")
    if scheduler is not None:
        there = distributed.connect(scheduler)
    elif local_cluster is not None:
        there = distributed.local_cluster(local_cluster)
    else:
        yield None
        return
    # Dask prints its bars to stdout, which is only for results.
    with there as client, redirect_stdout(sys.stderr):
        yield Workers(sum(client.nthreads().values()), int(shows_bars(None)))
