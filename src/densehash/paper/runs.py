"""One run: a method learns from a set and is measured on it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import RandomState

from densehash import estimates
from densehash.errors import InputError
from densehash.hashers import Hasher
from densehash.index.kinds import Flat
from densehash.index.sketches import Signs
from densehash.index.sketches.signs import check_bits
from densehash.paper.methods import PEERS, SIGNS, make_hasher
from densehash.paper.problem import Problem
from densehash.paper.rankings import rank_by_distances, rank_by_hamming, rank_by_margins
from densehash.paper.records import Record, pack_array
from densehash.parallel import n_threads
from densehash.rows import Rows

__all__ = ["VERSION", "Run", "machine", "measure"]

_REPEATS = 5  # the queries are hashed this often, because that takes only milliseconds

VERSION = version("densehash")

_FACTORS = 4  # bytes a row for factors, with signs or with codes that are ranked by estimates

_Parameter = tuple[str, int | float | str]


@dataclass(frozen=True)
class Run:
    """A method with its parameters and one seed.

    Attributes
    ----------
    method : one of METHODS or PEERS, or SIGNS
    n_bits : length of its codes; for signs and peers, the bits of all that is kept of a row,
        including factors
    seed : the seed for all that is drawn at random
    parameters : names and values of parameters that differ from its defaults
    n_rows, n_features : how many of the first rows and features it learns from; default all
    ranks : whether to rank the database; otherwise only times are measured
    asymmetric : whether to rank it also by the margins of the query
    estimates : whether to rank it also by estimates from the codes
    """

    method: str
    n_bits: int
    seed: int = 0
    parameters: tuple[_Parameter, ...] = ()
    n_rows: int | None = None
    n_features: int | None = None
    ranks: bool = True
    asymmetric: bool = False
    estimates: bool = False

    def hasher(self) -> Hasher:
        """The hasher of this run, not fitted."""
        return make_hasher(
            self.method, self.n_bits, seed=self.seed, parameters=dict(self.parameters)
        )

    def key(self, identity: Mapping[str, Any]) -> dict[str, Any]:
        """The full specification of the run on a problem of this identity.

        The seed is None if the method uses no randomness, so that it runs only once.

        Examples
        --------
        >>> Run("PCAH", 8, seed=3).key({"set": "digits"})["seed"] is None
        True
        """
        every = _every_parameter(self.method, self.parameters)
        chance = any(_own_name(name) == "random_state" for name in every)
        named = {name: value for name, value in every.items() if _own_name(name) not in _APART}
        return {
            **identity,
            "method": self.method,
            "bits": self.n_bits,
            "seed": self.seed if chance else None,
            "parameters": named,
            "learns_rows": self.n_rows,
            "learns_features": self.n_features,
            "ranks": self.ranks,
            "asymmetric": self.asymmetric,
            "estimates": self.estimates,
            "version": VERSION,
        }


@cache
def _every_parameter(method: str, changed: tuple[_Parameter, ...]) -> dict[str, object]:
    """All parameters of a method. A peer has none, and no seed; signs have only a seed."""
    if method in PEERS:
        return {}
    if method == SIGNS:
        return {"random_state": None}
    every = make_hasher(method, 1, parameters=dict(changed)).get_params()
    return {name: _plain(value) for name, value in every.items()}


_APART = {"n_bits", "random_state", "verbose"}  # a key has these elsewhere, or not at all


def _own_name(parameter: str) -> str:
    """The name of a parameter without the names of the hashers that contain it."""
    return parameter.rpartition("__")[2]


def _plain(value: object) -> object:
    """A value that JSON can hold; a hasher inside another one becomes the name of its class."""
    return value if isinstance(value, (str, int, float, type(None))) else type(value).__name__


def measure(problem: Problem, run: Run) -> Record:
    """Run a method on a problem, and return the raw measurements.

    Returns
    -------
    A record: ``seconds``, ``machine`` and ``threads``. With ``ranks``, it also has, for each query,
    the number of codes at each distance (``counts``), how many of them are true neighbours
    (``relevant_counts``), and the distances of its k nearest rows (``near``). If the method refuses
    the problem, for example because it has too few features, ``refused`` has the reason.
    """
    record: Record = {"machine": machine(), "threads": n_threads()}
    try:
        if run.method in PEERS:
            from densehash.paper import peers  # noqa: PLC0415  an extra

            return {**record, **peers.measure(problem, run.method, run.n_bits)}
        if run.method == SIGNS:
            return {**record, **_measure_signs(problem, run)}
        return {**record, **_measure_hasher(problem, run)}
    except InputError as error:
        return {**record, "refused": str(error)}


def machine() -> str:
    """The machine, in a few words.

    Examples
    --------
    >>> machine().startswith(platform.system())
    True
    """
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs{_cpu_name()}, "
        f"Python {platform.python_version()}"
    )


def _cpu_name() -> str:
    """The name of the processor on Linux, if it has one."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""
    names = (line.partition(":")[2] for line in text.splitlines() if line.startswith("model name"))
    return next((f" ({name.strip()})" for name in names), "")


def _measure_hasher(problem: Problem, run: Run) -> Record:
    hasher = run.hasher()
    vectors = problem.vectors[: run.n_rows, : run.n_features]
    asked = problem.asked[:, : run.n_features]
    started = time.perf_counter()
    hasher.fit(vectors)
    fitted = time.perf_counter()
    codes = hasher.transform(vectors)
    encoded = time.perf_counter()
    query_codes = hasher.transform(asked)
    query_seconds = []
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        hasher.transform(asked)
        query_seconds.append(time.perf_counter() - begun)
    record: Record = {
        "seconds": {"fit": fitted - started, "encode": encoded - fitted, "queries": query_seconds},
        "bytes": codes.shape[1],
    }
    if not run.ranks:
        return record
    arrays = rank_by_hamming(query_codes, codes, problem, run.n_bits)
    if run.asymmetric:
        found = rank_by_margins(hasher.project(asked), codes, problem)
        arrays |= {f"asymmetric_{name}": array for name, array in found.items()}
    if run.estimates:
        estimator = estimates.learn(codes, vectors)
        factors = estimator.factors(codes, vectors)
        found = rank_by_distances(lambda some: estimator.distances(some, codes, factors), problem)
        arrays |= {f"estimates_{name}": array for name, array in found.items()}
        record["bytes_for_estimates"] = codes.shape[1] + _FACTORS
    record["arrays"] = {name: pack_array(array) for name, array in arrays.items()}
    return record


def _measure_signs(problem: Problem, run: Run) -> Record:
    """Measure signs with all rows in one group, as peers are measured."""
    n_signs = run.n_bits - 8 * _FACTORS
    if run.n_bits % 8 or n_signs < 8:
        raise InputError(
            f"signs are whole bytes, and {8 * _FACTORS} bits of factors, got {run.n_bits} bits in "
            "all"
        )
    check_bits(n_signs)
    rows = Rows(problem.vectors)
    started = time.perf_counter()
    sketch = Signs.learn(
        rows, Flat(), n_bits=n_signs, metric="l2", random_state=RandomState(run.seed)
    )
    fitted = time.perf_counter()
    parts = list(rows.map(lambda block, _: sketch.encode(block, None), width=n_signs))
    encoded = time.perf_counter()
    relative = np.ascontiguousarray(problem.asked - sketch.model.shift, np.float32)
    query_seconds = []
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        sketch.model.decoder.products(relative)
        query_seconds.append(time.perf_counter() - begun)
    codes, factors = (
        np.concatenate([part[name] for part in parts]) for name in ("codes", "factors")
    )
    decoder = sketch.model.decoder
    # With one group around the mean, (α − ⟨s, G q⟩) / β is |r|² − 2 f ⟨s, G q⟩.
    alphas, betas = (factors * np.array([decoder.alpha, decoder.beta], np.float32)).T
    kept = np.stack([np.sqrt(np.maximum(alphas / betas, 0)), 0.5 / betas], axis=1)
    center = sketch.model.shift.astype(np.float64)
    estimator = estimates.Estimator(decoder.matrix, np.zeros_like(sketch.model.shift), center, 1.0)
    arrays = rank_by_distances(lambda some: estimator.distances(some, codes, kept), problem)
    return {
        "seconds": {"fit": fitted - started, "encode": encoded - fitted, "queries": query_seconds},
        "bytes": codes.shape[1] + _FACTORS,
        "arrays": {name: pack_array(array) for name, array in arrays.items()},
    }
