"""Bars that show how far a long computation has come, on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["bar"]

_PATIENCE = 2.0
"""Seconds after which a bar appears: what is over by then needs none."""


@contextmanager
def bar(label: str, total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Show a bar with the time left, if asked to and if the work takes more than two seconds.

    Parameters
    ----------
    label : what is being done
    total : how much there is to do, in any unit
    shown : whether to show anything at all

    Yields
    ------
    A function to be told how much more was done; from one thread at a time.

    Examples
    --------
    >>> with bar("counting", 3, shown=False) as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    if not shown:
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415  most calls show nothing
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("of"),
        TimeElapsedColumn(),
    )
    begun, visible = time.monotonic(), False
    progress = Progress(*columns, console=Console(stderr=True), auto_refresh=False)
    task = progress.add_task(label, total=total)

    def advance(amount: int) -> None:
        nonlocal visible
        progress.update(task, advance=amount)
        if not visible and time.monotonic() - begun > _PATIENCE:
            progress.start()
            visible = True
        if visible:
            progress.refresh()

    try:
        yield advance
    finally:
        if visible:  # or an empty line would be printed
            progress.stop()
