"""Progress bars for long computations, on stderr or in a notebook."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from html import escape
from threading import Event, Lock, Thread
from typing import Any, NamedTuple, Protocol

__all__ = ["bar", "in_notebook", "shows_bars", "silenced", "steps"]

_PATIENCE = 1.0
"""Seconds after which a bar appears; shorter work needs none."""

_EVERY = 0.25  # seconds between two updates
_LATELY = 30.0  # seconds; the speed during the last of them predicts the time left

_one_at_a_time = Lock()  # a bar inside another one is not shown
_silent = False


def shows_bars(verbose: int | None) -> bool:
    """Whether to show bars; None shows them in a terminal and in a notebook.

    Examples
    --------
    >>> shows_bars(1), shows_bars(0)
    (True, False)
    """
    if _silent:
        return False
    if verbose is None:
        return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())
    return verbose > 0


@contextmanager
def silenced() -> Iterator[None]:
    """Show no bar of this process during a ``with`` block, whatever ``verbose`` is.

    Examples
    --------
    >>> with silenced():
    ...     shows_bars(1)
    False
    """
    global _silent  # noqa: PLW0603  work that shows bars may be many calls away
    before, _silent = _silent, True
    try:
        yield
    finally:
        _silent = before


def in_notebook() -> bool:
    """Whether this process runs the cells of a notebook.

    Examples
    --------
    >>> in_notebook()
    False
    """
    ipython = sys.modules.get("IPython")  # a notebook has loaded it
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None  # IPython in a terminal has none


@contextmanager
def bar(label: str, total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Show a bar with the time left, if ``shown`` and if the work takes more than a second.

    Parameters
    ----------
    label : what is being done
    total : the amount of work, in any unit; 0 if it is unknown
    shown : whether to show anything at all

    Yields
    ------
    A function to call with the amount of work just done, from one thread at a time.

    Examples
    --------
    >>> with bar("counting", 3, shown=False) as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    if not shown or _silent:
        yield lambda _: None
        return
    work = _Work(label, total, lately=_LATELY)
    with _watched(work):
        yield work.advance


@contextmanager
def steps(
    total: float, *, shown: bool
) -> Iterator[Callable[[str, float], AbstractContextManager[None]]]:
    """Show the progress of a list of long steps of different kinds, with the time left.

    During a step, its name is shown with the share of its expected time that has passed; the
    expected time follows from its cost.

    Parameters
    ----------
    total : the cost of all steps, in any unit, from which the time left is computed
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
    if not shown or _silent or total <= 0:
        yield lambda _label, _cost: nullcontext()
        return
    # Steps differ a lot: only the mean speed over all of them predicts the time left.
    work = _Work("", total, lately=float("inf"))
    with _watched(work):
        yield work.step


class _Told(NamedTuple):
    """What a display shows: a name, the share that is done (None if unknown), and times."""

    label: str
    share: float | None
    times: str


class _Work:
    """The state of some work: one thread does the work, another one reads its progress."""

    def __init__(self, label: str, total: float, *, lately: float) -> None:
        self.begun = time.monotonic()
        self._label, self._total, self._lately = label, total, lately
        self._done = 0.0
        self._step: tuple[float, float] | None = None  # when it began, and its cost
        self._past = deque([(self.begun, 0.0)])

    def advance(self, amount: float) -> None:
        self._done += amount

    @contextmanager
    def step(self, label: str, cost: float) -> Iterator[None]:
        self._label, self._step = label, (time.monotonic(), cost)
        yield
        self._step = None
        self._done += cost

    def told(self) -> _Told:
        now = time.monotonic()
        label, done, step = self._label, self._done, self._step
        if step is not None:
            begun, cost = step
            spent = now - begun
            if done:
                expected = (begun - self.begun) * cost / done
                part = spent / max(expected, 1e-9)
                label += f": {part:.0%} of its time" if part < 1 else ": longer than expected"
                done += cost * min(part, 0.99)
            else:  # no step is done, so no speed is known
                label += f": {_clock(spent)}"
        share = min(done / self._total, 1.0) if self._total else None
        return _Told(label, share, self._times(now, done))

    def _times(self, now: float, done: float) -> str:
        self._past.append((now, done))
        while now - self._past[0][0] > self._lately and len(self._past) > 2:
            self._past.popleft()
        then, before = self._past[0]
        left = (self._total - done) * (now - then) / (done - before) if done > before else None
        if not self._total or left is None:
            return _clock(now - self.begun)
        return f"{_clock(max(left, 0.0))} left of {_clock(now - self.begun + max(left, 0.0))}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Display(Protocol):
    def show(self, told: _Told) -> None: ...
    def close(self) -> None: ...


@contextmanager
def _watched(work: _Work) -> Iterator[None]:
    """Show some work while a ``with`` block does it.

    Another thread draws the bar, so that it appears and moves even if the work seldom reports its
    progress.
    """
    ended = Event()

    def watch() -> None:
        ended.wait(_PATIENCE)
        if time.monotonic() - work.begun <= _PATIENCE or not _one_at_a_time.acquire(blocking=False):
            return
        display: _Display = _Notebook() if in_notebook() else _Terminal()
        try:
            while not ended.is_set():
                display.show(work.told())
                ended.wait(_EVERY)
            display.show(work.told())
        finally:
            display.close()
            _one_at_a_time.release()

    # In a notebook, the context says to which cell the work belongs.
    thread = Thread(target=copy_context().run, args=[watch], daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class _Terminal:
    """A line on stderr."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415  most calls show nothing
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[percent]}"),
            TextColumn("{task.fields[times]}"),
            console=Console(stderr=True),
            auto_refresh=False,
        )
        self._task = self._progress.add_task("", total=None, percent="", times="")
        self._progress.start()

    def show(self, told: _Told) -> None:
        self._progress.update(
            self._task,
            description=told.label,
            total=None if told.share is None else 1.0,
            completed=told.share or 0.0,
            percent="" if told.share is None else f"{told.share:>4.0%}",
            times=told.times,
            refresh=True,
        )

    def close(self) -> None:
        self._progress.stop()


class _Notebook:
    """A line below a cell; it needs no widgets, so it works in every kind of notebook."""

    def __init__(self) -> None:
        from IPython.display import display  # noqa: PLC0415  a notebook has it

        self._display: Callable[..., Any] = display
        self._handle: Any = None

    def show(self, told: _Told) -> None:
        known = told.share is not None
        words = [told.label, *([f"{told.share:.0%}"] if known else []), told.times]
        value = f' value="{told.share:.3f}"' if known else ""
        page = f"{escape(told.label)} <progress{value}></progress> {escape(', '.join(words[1:]))}"
        shown = {"text/plain": ", ".join(words), "text/html": f"<div>{page}</div>"}
        if self._handle is None:
            self._handle = self._display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def close(self) -> None:
        pass
