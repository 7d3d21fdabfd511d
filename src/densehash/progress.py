"""Bars that show how far a long computation has come, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["bar", "shows_bars", "steps"]

_PATIENCE = 1.0
"""Seconds after which a bar appears: what is over by then needs none."""


def shows_bars(verbose: int | None) -> bool:
    """Whether to show bars; where nothing is said, in a terminal alone.

    Examples
    --------
    >>> shows_bars(1), shows_bars(0)
    (True, False)
    """
    if verbose is None:
        return sys.stderr is not None and sys.stderr.isatty()
    return verbose > 0


@contextmanager
def bar(label: str, total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Show a bar with the time left, if asked to and if the work takes more than a second.

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
    begun, visible = time.monotonic(), False
    progress = _progress(auto_refresh=False)
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


@contextmanager
def steps(
    total: float, *, shown: bool
) -> Iterator[Callable[[str, float], AbstractContextManager[None]]]:
    """Show how far a list of long and unlike steps has come, with the time left.

    Parameters
    ----------
    total : the cost of all steps, in any unit; the time left is told from it
    shown : whether to show anything at all

    Yields
    ------
    A function that takes a step's name and its cost, for a ``with`` block around the step.

    Examples
    --------
    >>> with steps(3.0, shown=False) as begin:
    ...     with begin("the first", 1.0):
    ...         pass
    """
    if not shown or total <= 0:
        yield lambda _label, _cost: nullcontext()
        return
    # Steps differ a lot: only the mean over all of them says how long the rest will take.
    progress = _progress(auto_refresh=True, speed_estimate_period=1e9)
    task = progress.add_task("", total=total)

    @contextmanager
    def begin(label: str, cost: float) -> Iterator[None]:
        progress.update(task, description=label)
        yield
        progress.update(task, advance=cost)

    with progress:
        yield begin


def _progress(*, auto_refresh: bool, speed_estimate_period: float = 30.0) -> Progress:
    from rich.console import Console  # noqa: PLC0415  most calls show nothing
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("of"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        auto_refresh=auto_refresh,
        speed_estimate_period=speed_estimate_period,
    )
