"""Connect to a cluster that runs somewhere, or make one of processes on this machine."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client, LocalCluster
from distributed.comm.addressing import parse_address, parse_host_port
from distributed.comm.registry import get_backend
from distributed.core import rpc

from densehash.checks import check_integer, check_positive
from densehash.errors import FileError, InputError

__all__ = ["connect", "local_cluster"]


def connect(address: str, *, timeout: float = 7.0) -> Client:
    """Connect to the scheduler of a cluster; from then on, Dask computes on this cluster.

    Parameters
    ----------
    address : the address that ``dask scheduler`` prints, such as ``tcp://10.0.0.1:8786``
    timeout : seconds to wait for an answer, default 7

    Returns
    -------
    distributed.Client, which becomes the current one; a ``with`` block closes it

    Raises
    ------
    InputError : if ``address`` is not an address
    FileError : if no scheduler answers at this address

    Examples
    --------
    >>> connect("tcp://somewhere")
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: 'tcp://somewhere' is no address of a scheduler, such as \
tcp://10.0.0.1:8786: missing port number in address 'somewhere'
    """
    check_positive(timeout, "timeout")
    end = time.monotonic() + timeout
    try:
        scheme, place = parse_address(address)
        get_backend(scheme)
        parse_host_port(place)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{address!r} is no address of a scheduler, such as tcp://10.0.0.1:8786: {error}"
        ) from None
    # Asked first: a client would wait on if something listens there that is not a scheduler.
    trouble = _trouble_at(address, timeout)
    if trouble is None:
        try:
            return Client(address, timeout=max(end - time.monotonic(), 1.0))
        except OSError as error:
            trouble = str(error)
    raise FileError(f"no scheduler answers at {address} within {timeout:g} s: {trouble}")


@contextmanager
def local_cluster(n_workers: int) -> Iterator[Client]:
    """A cluster of processes on this machine, for a ``with`` block.

    Each process has one thread; there is no dashboard. A script must call this below
    ``if __name__ == "__main__":``, because the processes import the script.

    Parameters
    ----------
    n_workers : how many processes

    Yields
    ------
    distributed.Client, which is the current one

    Examples
    --------
    >>> with local_cluster(2) as client:  # doctest: +SKIP
    ...     DSH(64).fit(X)  # a dask array
    """
    with (
        LocalCluster(
            n_workers=check_integer(n_workers, "n_workers", 1),
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=":0",  # otherwise it warns if the usual port is in use
            worker_dashboard_address=None,
            scheduler_kwargs={"dashboard": False},
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def _trouble_at(address: str, timeout: float) -> str | None:
    """What is wrong at an address; None if a scheduler answers."""
    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(asyncio.run(asyncio.wait_for(_identity(address, timeout), timeout)))
        except Exception as error:  # noqa: BLE001  a wrong answer can raise anything
            answers.append(error)

    # In a thread of its own: this one may run an event loop, and must not wait for ever.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout + 0.5)
    answer = answers[0] if answers else TimeoutError()
    if isinstance(answer, asyncio.TimeoutError):
        return "nothing came"
    if isinstance(answer, Exception):
        return f"{type(answer).__name__}: {answer}"
    found = answer.get("type") if isinstance(answer, dict) else None
    return None if found == "Scheduler" else f"there is a {found}"


async def _identity(address: str, timeout: float) -> Any:
    async with rpc(address, timeout=timeout) as there:
        return await there.identity()
