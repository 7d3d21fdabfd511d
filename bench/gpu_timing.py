"""Shared by benchmarks on a GPU: a case with its limit, and two ways to measure."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

_TIMES = 7  # the median of this many counts


@dataclass(frozen=True)
class Case:
    """Work that must take at most some time, or reach at least some share.

    Attributes
    ----------
    name : what is done, with sizes
    limit : the limit, in the unit
    unit : "ms" or "s", where less is better, or "%", where more is better
    measure : makes its data, warms up, and returns the median, in the unit
    """

    name: str
    limit: float
    unit: str
    measure: Callable[[], float]

    def is_met(self, measured: float) -> bool:
        """Whether a figure is within the limit."""
        return measured >= self.limit if self.unit == "%" else measured <= self.limit


def milliseconds(work: Callable[[], Any]) -> float:
    """The median time of some work by CUDA events, after two times that do not count."""
    work()
    work()
    times = []
    for _ in range(_TIMES):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return float(median(times))


def seconds(work: Callable[[], Any], times: int = 3) -> float:
    """The median time of some work by the clock, after one time that does not count."""
    found = []
    for _ in range(times + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return median(found[1:])
