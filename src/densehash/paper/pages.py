"""The page of the report, made only from records."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Iterator
from datetime import date
from importlib.metadata import PackageNotFoundError, version

from densehash.hamming import instruction_set
from densehash.paper import published, toy
from densehash.paper.claims import claims_table
from densehash.paper.figures import draw
from densehash.paper.results import Results
from densehash.paper.studies import Plan
from densehash.paper.tables import (
    beyond_table,
    cost_table,
    map_table,
    parameter_table,
    times_table,
)
from densehash.parallel import n_threads
from densehash.report import Figure, Page, Section, Table

__all__ = ["facts", "machines", "paper_page"]

_TITLES = {
    "2": "Figure 2: mean average precision",
    "3": "Figure 3: precision and recall",
    "times": "Tables 1 to 3: training and test time",
    "p": "Figure 4 and Table 4: the passes of k-means",
    "alpha": "Figure 6 and Table 5: the number of groups",
    "r": "Figure 5: how many groups count as near",
    "cost": "Section 3.4: what it costs",
    "beyond": "Beyond the paper",
    "peers": "Beside faiss, at as many bytes a row",
}

_TEXTS = {
    "2": "The database is ranked by Hamming distance for every query.",
    "3": "Precision and recall of all codes within a Hamming radius, for growing radii.",
    "times": "Training is a whole fit; test time is that of hashing one query.",
    "p": "DSH alone; the other parameters stay at their defaults, alpha = 1.5 and r = 3.",
    "alpha": "DSH alone, p = 3 and r = 3. k-means makes alpha × L groups.",
    "r": "DSH alone, p = 3 and alpha = 1.5.",
    "cost": "The model says O(αLpnd) to train, all but k-means being small, and O(Ld) for a query, "
    "as LSH.",
    "beyond": "What came after it: ITQ, planes chosen by contrast, refined planes, and rankings "
    "that keep the query's real margins.",
    "peers": "LSH with learnt thresholds, product quantisation, and RaBitQ on principal "
    "directions. The last two rank by distances estimated from codes.",
}


def paper_page(
    every: list[Results], plan: Plan, *, command: str, descriptions: dict[str, str] | None = None
) -> Page:
    """All figures and tables for which there are records.

    Parameters
    ----------
    every : results of each set
    plan : what was run
    command : the command that made the page
    descriptions : descriptions of sets, by name
    """
    sections: list[Section] = []
    claims = claims_table(every, plan)
    if claims is not None:
        sections.append(Section("What holds", (claims,)))
    sections.append(toy.section())
    for part in plan.parts:
        items = tuple(_items(part, every, plan))
        if items:
            # A row of figures shows one study on every set.
            sections.append(Section(_TITLES[part], items, _TEXTS[part], min(len(every), 3)))
    sets = "; ".join(
        f"{results.identity['set']}, {results.identity['rows']:,} × "
        f"{results.identity['features']}, {results.identity['queries']:,} queries"
        for results in every
    )
    told = (descriptions or {}).items()
    return Page(
        "Density Sensitive Hashing, measured",
        tuple(sections),
        f"The comparison of Lin, Cai and Li on {sets}.",
        {
            **{f"set {name}": text for name, text in told if text},
            **facts(plan, command, machines(every, plan)),
        },
    )


def _items(part: str, every: list[Results], plan: Plan) -> Iterator[Figure | Table]:
    for study in plan.studies():
        if study.part == part:
            drawn = [draw(study, results, plan) for results in every]
            yield from (figure for figure in drawn if figure is not None)
    if part == "2":
        yield from (map_table(results, plan) for results in every)
    elif part == "times":
        yield from _there(times_table(results, plan) for results in every)
    elif part == "p":
        yield from _there([parameter_table("table-4", every, plan, published.TRAINING_BY_P)])
    elif part == "alpha":
        yield from _there([parameter_table("table-5", every, plan, published.TRAINING_BY_ALPHA)])
    elif part == "cost":
        yield from _there([cost_table(every, plan)])
    elif part == "beyond":
        yield from (beyond_table(results, plan) for results in every)


def _there(tables: Iterable[Table | None]) -> Iterator[Table]:
    return (table for table in tables if table is not None)


def machines(every: list[Results], plan: Plan) -> str:
    """The machines that measured the records; this machine may not be among them."""
    found = {
        measured.machine
        for results in every
        for method in plan.methods
        for n_bits in plan.bits
        for measured in results.seeds(plan.run(method, n_bits), plan.n_seeds)
    }
    return "; ".join(sorted(found))


def facts(plan: Plan, command: str, machines: str) -> dict[str, str]:
    """What a reader needs to reproduce the figures.

    Examples
    --------
    >>> facts(Plan(), "densehash paper", "Linux")["seeds"]
    '0, 1, 2'
    """
    packages = ("densehash", "numpy", "scipy", "scikit-learn", "faiss-cpu")
    return {
        "command": command,
        "seeds": ", ".join(map(str, range(plan.n_seeds))),
        "measured on": machines,
        "threads": str(n_threads()),
        "instruction set": instruction_set(),
        "versions": ", ".join(filter(None, map(_version, packages))),
        "Python": f"{platform.python_version()} on {sys.platform}",
        "drawn": date.today().isoformat(),
    }


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""
