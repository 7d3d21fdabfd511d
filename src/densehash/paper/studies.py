"""Every figure and table of the paper, and some more, as data: what to run and what to draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from densehash.errors import InputError
from densehash.paper.methods import BEYOND, METHODS, PAPER, PEERS
from densehash.paper.published import ALPHAS, PASSES, TABLE_BITS
from densehash.paper.runs import Run

__all__ = [
    "BITS",
    "CANDIDATES",
    "PARTS",
    "QUICK",
    "STUDIES",
    "Plan",
    "Study",
    "check_parts",
    "runs_of",
]

BITS = (8, 12, 16, 24, 32, 48, 64, 96, 128)
CANDIDATES = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


@dataclass(frozen=True)
class Study:
    """One figure, drawn for each set.

    Attributes
    ----------
    name : name of its files
    part : the section of the report to which it belongs
    title : the text above it
    x : what the x axis shows: "bits"; a parameter of the method ("p", "alpha", "r"); "rows" or
        "features" to learn from, as shares of all; "candidates" that are re-ranked; or "recall"
    y : the measure: a name in :data:`densehash.paper.figures.MEASURES`
    methods : one line each
    bits : code lengths; only one, unless x is "bits"
    values : the values of the x axis, unless x is "bits" or "recall"
    asymmetric : whether each method has a second line, ranked by the query's margins
    """

    name: str
    part: str
    title: str
    x: str
    y: str
    methods: tuple[str, ...]
    bits: tuple[int, ...]
    values: tuple[float, ...] = ()
    asymmetric: bool = False


STUDIES = (
    Study("figure-2", "2", "MAP against code length", "bits", "map", PAPER, BITS),
    Study("figure-3-48", "3", "Precision-recall at 48 bits", "recall", "precision", PAPER, (48,)),
    Study("figure-3-96", "3", "Precision-recall at 96 bits", "recall", "precision", PAPER, (96,)),
    Study("tables-1-3-training", "times", "Training time", "bits", "fit", PAPER, TABLE_BITS),
    Study("tables-1-3-test", "times", "Test time, one query", "bits", "query", PAPER, TABLE_BITS),
    Study("figure-4", "p", "MAP against p, 64 bits", "p", "map", ("DSH",), (64,), PASSES),
    Study("table-4", "p", "Training time against p, 64 bits", "p", "fit", ("DSH",), (64,), PASSES),
    Study(
        "figure-6", "alpha", "MAP against alpha, 64 bits", "alpha", "map", ("DSH",), (64,), ALPHAS
    ),
    Study(
        "table-5", "alpha", "Training time against alpha, 64 bits", "alpha", "fit", ("DSH",), (64,),
        ALPHAS,
    ),
    Study(
        "figure-5", "r", "MAP against r, 64 bits", "r", "map", ("DSH",), (64,), tuple(range(1, 11))
    ),
    Study(
        "cost-rows", "cost", "Training time against rows, 64 bits", "rows", "fit", ("DSH",), (64,),
        (0.125, 0.25, 0.5, 1.0),
    ),
    Study("cost-bits", "cost", "Training time against code length", "bits", "fit", ("DSH",), BITS),
    Study(
        "cost-features", "cost", "Training time against features, 64 bits", "features", "fit",
        ("DSH",), (64,), (0.25, 0.5, 0.75, 1.0),
    ),
    Study("cost-test", "cost", "Test time, one query", "bits", "query", ("LSH", "DSH"), BITS),
    Study(
        "beyond-map", "beyond", "MAP against code length", "bits", "map", ("DSH", *BEYOND), BITS
    ),
    Study(
        "beyond-asymmetric", "beyond", "MAP, asymmetric ranking", "bits", "map",
        ("LSH", "DSH", "ITQ", "Refined(DSH)"), BITS, asymmetric=True,
    ),
    Study(
        "beyond-recall-64", "beyond", "Recall of the 10 nearest after re-ranking, 64 bits",
        "candidates", "recall", METHODS, (64,), CANDIDATES,
    ),
    Study(
        "beyond-recall-128", "beyond", "Recall of the 10 nearest after re-ranking, 128 bits",
        "candidates", "recall", METHODS, (128,), CANDIDATES,
    ),
    Study(
        "beyond-lookup", "beyond", "Precision of a lookup within radius 2", "bits", "lookup",
        METHODS, BITS,
    ),
    Study(
        "peers-map", "peers", "MAP at as many bytes a row", "bits", "map",
        ("DSH", "ITQ", "Refined(DSH)", *PEERS), (32, 64, 96, 128), asymmetric=True,
    ),
    Study(
        "peers-recall", "peers", "Recall of the 10 nearest after re-ranking, 16 bytes a row",
        "candidates", "recall", ("DSH", "ITQ", "Refined(DSH)", *PEERS), (128,), CANDIDATES,
        asymmetric=True,
    ),
)  # fmt: skip

PARTS = tuple(dict.fromkeys(study.part for study in STUDIES))


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes
    ----------
    methods : figures leave out all other methods
    bits : code lengths; figures at one length, such as the parameter studies, have their own
    n_seeds : how many seeds; figures show the spread over them
    parts : parts of the report to make
    n_steps : ``n_steps`` of Refined; default: that of Refined
    estimates : whether hashers are also ranked by estimates from their codes
    """

    methods: tuple[str, ...] = METHODS
    bits: tuple[int, ...] = BITS
    n_seeds: int = 3
    parts: tuple[str, ...] = PARTS
    n_steps: int | None = None
    estimates: bool = False

    def parameters(self, method: str) -> tuple[tuple[str, int], ...]:
        """The parameters of a method that differ from its defaults."""
        changed = self.n_steps is not None and method.startswith("Refined")
        return (("n_steps", self.n_steps),) if changed and self.n_steps is not None else ()

    def run(self, method: str, n_bits: int) -> Run:
        """A run of a method with the plan's parameters, with all measurements."""
        return Run(
            method,
            n_bits,
            parameters=self.parameters(method),
            asymmetric=method in METHODS,
            estimates=self.estimates and method in METHODS,
        )

    def lengths(self, study: Study) -> tuple[int, ...]:
        """The code lengths at which a study runs.

        A study of all lengths takes those of the plan, and a study of one length takes that one.
        Any other takes those of its lengths that are in the plan.
        """
        if study.bits == BITS:
            return self.bits
        if len(study.bits) == 1:
            return study.bits
        return tuple(n_bits for n_bits in study.bits if n_bits in self.bits)

    def studies(self) -> tuple[Study, ...]:
        """The studies to draw."""
        return tuple(study for study in STUDIES if study.part in self.parts)


QUICK = Plan(bits=(16, 32, 48, 64, 96), n_seeds=2, n_steps=100)
"""What ``densehash paper --quick`` runs."""


def runs_of(
    study: Study, plan: Plan, method: str, identity: Mapping[str, Any]
) -> Iterator[tuple[float, Run]]:
    """The runs of a method for its line in a figure, each with its value on the x axis.

    If one run gives the whole line (x is "candidates" or "recall"), the value is 0.

    Examples
    --------
    >>> study = next(study for study in STUDIES if study.name == "figure-4")
    >>> [(x, run.parameters) for x, run in runs_of(study, Plan(), "DSH", {})][:2]
    [(1, (('p', 1),)), (2, (('p', 2),))]
    """
    for n_bits in plan.lengths(study):
        if study.x == "bits":
            yield n_bits, plan.run(method, n_bits)
        elif study.x in ("candidates", "recall"):
            yield 0, plan.run(method, n_bits)
        elif study.x in ("rows", "features"):
            for share in study.values:
                number = round(share * identity[study.x])
                yield number, Run(method, n_bits, ranks=False, **{f"n_{study.x}": number})
        else:
            for value in study.values:
                yield value, Run(method, n_bits, parameters=((study.x, value),))


def check_parts(parts: list[str]) -> tuple[str, ...]:
    """Check the names of parts of the report, and put them in its order.

    Examples
    --------
    >>> check_parts(["2", "p"])
    ('2', 'p')
    """
    for part in parts:
        if part not in PARTS:
            raise InputError(f"there is no part {part!r}; the parts are {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in parts)
