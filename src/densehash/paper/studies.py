"""Every figure and table of the paper, and some beyond it, as data: what runs, what is drawn."""

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
    name : of its files
    part : the section of the report that it belongs to
    title : what is written above it
    x : what runs along its axis: "bits"; a parameter of the method ("p", "alpha", "r"); "rows" or
        "features" to learn from, as shares of all; "candidates" that are re-ranked; or "recall"
    y : the measure: a name in :data:`densehash.paper.figures.MEASURES`
    methods : one line each
    bits : code lengths; one, unless x is "bits"
    values : along the axis, unless x is "bits" or "recall"
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
    """How much is run.

    Attributes
    ----------
    methods : those left out here are left out of every figure
    bits : likewise; figures at one code length (the parameter studies, say) have their own
    n_seeds : how many seeds; the spread over them is shown
    parts : parts of the report that are made
    n_steps : of Refined; None leaves its default
    estimates : whether hashers are also ranked by estimates from their codes
    """

    methods: tuple[str, ...] = METHODS
    bits: tuple[int, ...] = BITS
    n_seeds: int = 3
    parts: tuple[str, ...] = PARTS
    n_steps: int | None = None
    estimates: bool = False

    def parameters(self, method: str) -> tuple[tuple[str, int], ...]:
        """What a method gets beside its defaults."""
        changed = self.n_steps is not None and method.startswith("Refined")
        return (("n_steps", self.n_steps),) if changed and self.n_steps is not None else ()

    def run(self, method: str, n_bits: int) -> Run:
        """A method in its usual setting, fully measured."""
        return Run(
            method,
            n_bits,
            parameters=self.parameters(method),
            asymmetric=method in METHODS,
            estimates=self.estimates and method in METHODS,
        )

    def lengths(self, study: Study) -> tuple[int, ...]:
        """Code lengths of a study that are run.

        Those that were asked for, where it runs over all; else its own, if there is one only, or
        those of its own that were asked for.
        """
        if study.bits == BITS:
            return self.bits
        if len(study.bits) == 1:
            return study.bits
        return tuple(n_bits for n_bits in study.bits if n_bits in self.bits)

    def studies(self) -> tuple[Study, ...]:
        """What is drawn."""
        return tuple(study for study in STUDIES if study.part in self.parts)


QUICK = Plan(bits=(16, 32, 48, 64, 96), n_seeds=2, n_steps=100)
"""What ``densehash paper --quick`` runs."""


def runs_of(
    study: Study, plan: Plan, method: str, identity: Mapping[str, Any]
) -> Iterator[tuple[float, Run]]:
    """The runs behind a method's line: where on the axis, and what is run for it.

    Where the axis is not made of runs (candidates, recall), there is one run, at 0.

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
    """Parts of the report, in its order.

    Examples
    --------
    >>> check_parts(["2", "p"])
    ('2', 'p')
    """
    for part in parts:
        if part not in PARTS:
            raise InputError(f"there is no part {part!r}; the parts are {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in parts)
