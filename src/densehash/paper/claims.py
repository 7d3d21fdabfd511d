"""Compares the paper's claims with what was measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from densehash.paper.figures import draw
from densehash.paper.results import Results
from densehash.paper.studies import STUDIES, Plan
from densehash.paper.tables import growth_exponent
from densehash.report import Column, Series, Table

__all__ = ["CLAIMS", "claims_table"]

_LEVEL = 0.01  # in mean average precision
_SHORT_FIT = 0.05  # seconds; shorter fits spend most of their time elsewhere than on rows


class _Evidence:
    """Lines of the figures on one set, by study and method; a missing line is None."""

    def __init__(self, results: Results, plan: Plan) -> None:
        self.results = results
        self.plan = plan
        self.figures = {}
        for study in STUDIES:
            figure = draw(study, results, plan)
            if figure is not None:
                self.figures[study.name] = {line.name: line for line in figure.series}

    def line(self, study: str, method: str) -> Series | None:
        found = self.figures.get(study, {}).get(method)
        return found if found is not None and len(found.x) > 1 else None


class _Verdict(NamedTuple):
    """Whether a claim holds, and the numbers that show it."""

    holds: str
    why: str

    def __str__(self) -> str:
        return f"{self.holds}: {self.why}"


def _level(line: Series) -> float:
    """The largest difference that counts as none: the spread over seeds, but at least 0.01."""
    return max(_LEVEL, *(spread for spread in line.spread if spread is not None), 0.0)


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.3f}".removeprefix("0") for value in values)


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _random_methods_rise(evidence: _Evidence) -> _Verdict | None:
    lines = [evidence.line("figure-2", method) for method in ("LSH", "KLSH", "SIKH")]
    there = [line for line in lines if line is not None]
    if not there:
        return None
    rising = [
        line.name
        for line in there
        if all(later > earlier - _LEVEL for earlier, later in zip(line.y, line.y[1:], strict=False))
        and line.y[-1] > line.y[0] + _LEVEL
    ]
    ends = "; ".join(f"{line.name} {_numbers((line.y[0], line.y[-1]))}" for line in there)
    return _Verdict(_yes(len(rising) == len(there)), f"shortest, longest code: {ends}")


def _pcah_falls(evidence: _Evidence) -> _Verdict | None:
    line = evidence.line("figure-2", "PCAH")
    if line is None:
        return None
    best = max(range(len(line.y)), key=lambda at: line.y[at])
    falls = line.y[-1] < line.y[best] - _LEVEL
    best_text = f"best {_numbers((line.y[best],))} at {line.x[best]:g} bits"
    return _Verdict(_yes(falls), f"{best_text}, {_numbers((line.y[-1],))} at {line.x[-1]:g}")


def _learnt_methods_flatten(evidence: _Evidence) -> _Verdict | None:
    lines = [evidence.line("figure-2", method) for method in ("SpH", "AGH")]
    lsh = evidence.line("figure-2", "LSH")
    there = [line for line in lines if line is not None]
    if lsh is None or not there:
        return None
    middle = (len(lsh.x) - 1) // 2
    gains = {line.name: line.y[-1] - line.y[min(middle, len(line.y) - 1)] for line in (*there, lsh)}
    flat = all(gains[line.name] < gains["LSH"] / 2 for line in there)
    text = "; ".join(f"{name} {gain:+.3f}" for name, gain in gains.items())
    return _Verdict(_yes(flat), f"gain from {lsh.x[middle]:g} to {lsh.x[-1]:g} bits: {text}")


def _dsh_is_best(evidence: _Evidence) -> _Verdict | None:
    lines = list(evidence.figures.get("figure-2", {}).values())
    dsh = evidence.line("figure-2", "DSH")
    if dsh is None or len(lines) < 2:
        return None
    best, behind = [], []
    for bits, own in zip(dsh.x, dsh.y, strict=True):
        others = {
            line.name: line.y[line.x.index(bits)]
            for line in lines
            if line.name != "DSH" and bits in line.x
        }
        rival = max(others, key=lambda name: others[name], default="")
        if not rival or own >= others[rival]:
            best.append(f"{bits:g}")
        else:
            behind.append(f"{rival} at {bits:g} ({_numbers((others[rival], own))})")
    holds = "yes" if not behind else "partly" if best else "no"
    first = f"first at {', '.join(best)} bits" if best else "first nowhere"
    return _Verdict(holds, first + (f"; behind {', '.join(behind)}" if behind else ""))


def _rises_with(study: str) -> Callable[[_Evidence], _Verdict | None]:
    def judge(evidence: _Evidence) -> _Verdict | None:
        line = evidence.line(study, "DSH")
        if line is None:
            return None
        change, level = line.y[-1] - line.y[0], _level(line)
        holds = "yes" if change > level else "no, it falls" if change < -level else "no, flat"
        return _Verdict(holds, _numbers(line.y))

    return judge


def _falls_beyond_five(evidence: _Evidence) -> _Verdict | None:
    line = evidence.line("figure-5", "DSH")
    if line is None:
        return None
    few = [y for x, y in zip(line.x, line.y, strict=True) if x < 5]
    stable = max(few) - min(few) <= 2 * _level(line)
    falls = line.y[-1] < min(few) - _level(line)
    holds = "yes" if stable and falls else "partly" if stable or falls else "no"
    return _Verdict(
        holds,
        f"{'stable' if stable else 'not stable'} below 5, then "
        f"{'falls' if falls else 'does not fall'}: {_numbers(line.y)}",
    )


def _linear_in_rows(evidence: _Evidence) -> _Verdict | None:
    exponent = growth_exponent("cost-rows", evidence.results, evidence.plan)
    line = evidence.line("cost-rows", "DSH")
    if exponent is None or line is None:
        return None
    if line.y[0] < _SHORT_FIT:
        return _Verdict("cannot be said", f"{line.x[0]:,.0f} rows take {line.y[0]:.3f} s")
    return _Verdict(_yes(0.8 < exponent < 1.15), f"time grows as rows to the power {exponent:.2f}")


def _tests_as_fast_as_lsh(evidence: _Evidence) -> _Verdict | None:
    lines = [evidence.line("cost-test", method) for method in ("DSH", "LSH")]
    dsh, lsh = lines
    if dsh is None or lsh is None or dsh.x != lsh.x:
        return None
    ratios = sorted(mine / theirs for mine, theirs in zip(dsh.y, lsh.y, strict=True))
    middle = ratios[len(ratios) // 2]
    return _Verdict(_yes(middle < 1.25), f"DSH takes {middle:.2f} × as long as LSH (median length)")


def _trains_faster_than_learnt(evidence: _Evidence) -> _Verdict | None:
    lines = {m: evidence.line("tables-1-3-training", m) for m in ("DSH", "SpH", "AGH")}
    dsh = lines.pop("DSH")
    if dsh is None or None in lines.values():
        return None
    ratios = {m: line.y[-1] / dsh.y[-1] for m, line in lines.items() if line is not None}
    text = ", ".join(f"{name} takes {ratio:.2g} ×" for name, ratio in ratios.items())
    holds = "yes" if min(ratios.values()) > 1 else "partly" if max(ratios.values()) > 1 else "no"
    return _Verdict(holds, f"{text} DSH's time at {dsh.x[-1]:g} bits")


CLAIMS: dict[str, Callable[[_Evidence], _Verdict | None]] = {
    "LSH, KLSH and SIKH start low and rise with the code length": _random_methods_rise,
    "PCAH falls with the code length": _pcah_falls,
    "SpH and AGH gain little from longer codes": _learnt_methods_flatten,
    "DSH is above the six others at every length (Figure 2)": _dsh_is_best,
    "MAP rises with p (Figure 4)": _rises_with("figure-4"),
    "MAP rises with alpha (Figure 6)": _rises_with("figure-6"),
    "MAP is stable for r below 5, then falls (Figure 5)": _falls_beyond_five,
    "training time is linear in the rows (section 3.4)": _linear_in_rows,
    "hashing a query costs what it costs with LSH (section 3.4)": _tests_as_fast_as_lsh,
    "DSH trains faster than SpH and AGH (Tables 1 to 3)": _trains_faster_than_learnt,
}
"""Each claim of the paper, and the function that judges it."""


def claims_table(every: list[Results], plan: Plan) -> Table | None:
    """Which claims hold on each set; None if no claim can be judged."""
    evidence = [_Evidence(results, plan) for results in every]
    rows = []
    for claim, judge in CLAIMS.items():
        verdicts = [judge(each) for each in evidence]
        if any(verdicts):
            rows.append((claim, *(None if v is None else str(v) for v in verdicts)))
    if not rows:
        return None
    return Table(
        "claims",
        "The paper's claims, on these sets",
        (Column("claim"), *(Column(str(results.identity["set"])) for results in every)),
        tuple(rows),
        f"Differences in mean average precision up to {_LEVEL}, and up to the spread over seeds, "
        "count as none.",
    )
