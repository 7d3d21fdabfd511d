"""Draw the figures of the site and the README from records and tables.

Run it after a table or the records have changed::

    python docs/figures.py                                      # or: make figures
    python docs/figures.py --records build/index/records.json   # what `make bench-index` wrote

Curves of the index come from ``docs/figures/index.json``, which ``--records`` brings up to date,
set by set. All others come from the tables in ``docs/*.md``, so that a figure and its table cannot
differ. Each figure is an SVG for light pages and one for dark pages. Both say, in a comment at the
end, which numbers they were drawn from; a test compares them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
FOLDER = DOCS / "figures"
RECORDS = FOLDER / "index.json"
TITLES = {"sift": "SIFT", "gist": "GIST", "glove-large": "GloVe", "wordnet": "WordNet"}

# The first is that of densehash.
COLOURS = {
    "light": (
        "#0b8457",
        "#c4442b",
        "#3566c4",
        "#8a5fc0",
        "#b07a10",
        "#6b7280",
        "#0e8ea0",
        "#c0417f",
    ),
    "dark": (
        "#5ec99d",
        "#f28b74",
        "#8db4f5",
        "#c3a2ee",
        "#e0b14e",
        "#a3abb8",
        "#5fcbdb",
        "#ef8cbc",
    ),
}
INK = {"light": "#3b4148", "dark": "#c6ccd4"}


@dataclass(frozen=True)
class Line:
    """One curve: its name and its points."""

    name: str
    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x: str
    y: str
    lines: list[Line]


# --- what is drawn ---------------------------------------------------------------------------


def tables(page: str) -> list[list[list[str]]]:
    """The tables of a page, as rows of cells; the first row of each has the headings."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"(?:^\|.*\|\n)+", text, re.M)
    return [[_cells(line) for n, line in enumerate(t.splitlines()) if n != 1] for t in found]


def _cells(line: str) -> list[str]:
    inside = line.strip().strip("|").replace(r"\|", "\0")
    return [cell.strip().replace("\0", "|") for cell in inside.split("|")]


def number(cell: str) -> float:
    """The first number of a cell, as in ".124 ± .008" or "1.38 ×"."""
    found = re.search(r"[\d.,]*\d", cell)
    if found is None:
        raise ValueError(f"there must be a number in {cell!r}")
    return float(found[0].replace(",", ""))


def best(points: Sequence[dict[str, float]]) -> tuple[list[float], list[float]]:
    """The points that no other beats in both recall and speed, by recall."""
    kept: list[dict[str, float]] = []
    for point in sorted(points, key=lambda p: (-p["recall"], -p["speed"])):
        if not kept or point["speed"] > kept[-1]["speed"]:
            kept.append(point)
    kept.reverse()
    return [p["recall"] for p in kept], [p["speed"] for p in kept]


def recall_and_speed() -> list[Panel]:
    """Queries a second by recall, of the index and its peers on four sets."""
    panels = []
    for each in json.loads(RECORDS.read_text(encoding="utf-8"))["sets"]:
        lines = []
        for name, points in each["contestants"].items():
            kept = [p for p in points if p["recall"] >= 0.8]
            lines.append(Line(name, *best(kept)))
        title = f"{each['title']}, {each['rows']:,} × {each['features']}"
        panels.append(Panel(title, "recall@10", "queries a second", lines))
    return panels


def codes() -> list[Panel]:
    """Mean average precision by bits, of all methods on four sets."""
    panels = []
    sets = (
        *("SIFT, 99,000 × 128", "GIST, 50,000 × 960"),
        *("GloVe, 39,000 × 100", "Fashion-MNIST, 19,000 × 784"),
    )
    names = ("Refined(DSH)", "ITQ", "DSH", "KLSH", "LSH", "AGH", "SpH", "PCAH")
    own = [t for t in tables("hashers.md") if t[0][0] == "bits" and t[1][0] == "`LSH`"]
    for title, table in zip(sets, own, strict=True):
        rows = {row[0].strip("`"): row[1:] for row in table[1:]}
        bits = [float(cell) for cell in table[0][1:]]
        lines = []
        for name in names:
            pairs = [(b, number(c)) for b, c in zip(bits, rows[name], strict=True) if c]
            lines.append(Line(name, [b for b, _ in pairs], [m for _, m in pairs]))
        panels.append(Panel(title, "bits", "mean average precision", lines))
    return panels


def sketches() -> list[Panel]:
    """The true ten among the first rows, of signs and its peers at as many bytes."""
    names = {
        "as it is": "signs",
        "OPQ on residuals, as many bytes": "OPQ",
        "PQ on residuals, as many bytes": "PQ",
        "RaBitQ of faiss, as many bytes": "RaBitQ",
        "ITQ, Hamming distance": "ITQ, Hamming distance",
    }
    return _shares(names)


def lengths() -> list[Panel]:
    """The true ten among the first rows, by the number of signs."""
    return _shares({f"{bits} bits": f"{bits} signs" for bits in (256, 128, 64)})


def _shares(names: dict[str, str]) -> list[Panel]:
    table = next(t for t in tables("sketches.md") if t[1][0] == "as it is")
    rows = {row[0]: row[1:] for row in table[1:]}
    panels = []
    for place, head in enumerate(table[0][1:]):
        name, size, _ = head.split(", ")
        title = f"{TITLES[name]}, {size}"
        lines = []
        for row, name in names.items():
            shares = [number(part) for part in rows[row][place].split("/")]
            lines.append(Line(name, [10, 20, 50, 100], shares))
        panels.append(Panel(title, "first rows by the sketch", "of the true ten", lines))
    return panels


def scale() -> list[Panel]:
    """Seconds and memory by rows, of the commands on files larger than memory."""
    table = next(t for t in tables("scaling.md") if t[0][:2] == ["rows", "command"])
    panels = []
    for place, y in ((2, "seconds"), (4, "peak of memory, MB")):
        lines = []
        for command in ("build", "fit", "encode"):
            rows = [row for row in table[1:] if row[1] == command]
            lines.append(
                Line(command, [number(r[0]) for r in rows], [number(r[place]) for r in rows])
            )
        panels.append(Panel("", "rows", y, lines))
    return panels


def hamming() -> list[Panel]:
    """Nanoseconds a pair by bits, of the Hamming search and its peers."""
    table = tables("hamming.md")[-1]
    panels = []
    for work in ("256 queries a call", "1 query a call"):
        rows = [row for row in table[1:] if row[0] == work and row[2] == "1"]
        bits = [number(row[1]) for row in rows]
        own = [number(row[4]) for row in rows]
        lines = [Line("densehash", bits, own)]
        for name, place in (("xor, popcount and add alone", 5), ("faiss", 6), ("numpy", 8)):
            factors = [number(row[place]) for row in rows]
            times = [round(a * b, 3) for a, b in zip(own, factors, strict=True)]
            lines.append(Line(name, bits, times))
        panels.append(Panel(work, "bits", "nanoseconds a pair", lines))
    return panels


@dataclass(frozen=True)
class Drawing:
    """A figure: where its numbers come from, and how its axes are scaled."""

    panels: Callable[[], list[Panel]]
    log_x: bool = False
    log_y: bool = False


FIGURES = {
    "recall-speed": Drawing(recall_and_speed, log_y=True),
    "codes": Drawing(codes),
    "sketches": Drawing(sketches, log_x=True),
    "lengths": Drawing(lengths, log_x=True),
    "scale": Drawing(scale),
    "hamming": Drawing(hamming, log_x=True, log_y=True),
}


def mark(panels: list[Panel]) -> str:
    """What a figure of these numbers ends with."""
    said = json.dumps([asdict(panel) for panel in panels], ensure_ascii=False)
    return f"<!-- drawn from {hashlib.sha256(said.encode()).hexdigest()} -->"


# --- how it is drawn -------------------------------------------------------------------------


def draw(panels: list[Panel], drawing: Drawing, look: str, path: Path) -> None:
    """Write one figure as an SVG."""
    import matplotlib as mpl  # noqa: PLC0415  only drawing needs it
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.ticker import (  # noqa: PLC0415
        FixedLocator,
        FuncFormatter,
        LogLocator,
        NullFormatter,
    )

    ink = INK[look]
    settings: Any = {
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": "densehash",
        "font.family": "sans-serif",
        "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans", "sans-serif"],
        "font.size": 10,
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), ink),
        **dict.fromkeys(("xtick.color", "ytick.color"), ink),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": ink,
        "grid.alpha": 0.15,
    }
    with mpl.rc_context(settings):
        n_rows = (len(panels) + 1) // 2
        figure = Figure(figsize=(8, 3.1 * n_rows + 0.5), layout="constrained")
        axes = figure.subplots(n_rows, 2, squeeze=False).ravel()
        names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
        for panel, ax in zip(panels, axes, strict=True):
            for line in reversed(panel.lines):  # the first lies on top
                place = names.index(line.name)
                colour = COLOURS[look][place]
                width = 2.4 if place == 0 else 1.4
                ax.plot(
                    line.x, line.y, "o-", color=colour, lw=width, ms=width + 1.6, label=line.name
                )
            ax.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
            ax.grid(visible=True)
            if drawing.log_y:
                ax.set_yscale("log")
                ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                ax.yaxis.set_minor_formatter(NullFormatter())
            if drawing.log_x:
                ax.set_xscale("log")
                ax.xaxis.set_major_locator(FixedLocator(panel.lines[0].x))
                ax.xaxis.set_minor_formatter(NullFormatter())
            plain = FuncFormatter(lambda value, _: f"{value:,.10g}")
            ax.xaxis.set_major_formatter(
                FuncFormatter(lambda v, _: f"{v / 1e6:g} m") if panel.x == "rows" else plain
            )
            ax.yaxis.set_major_formatter(plain)
            if panel.x == "rows":
                ax.set_ylim(bottom=0)
        handles = {h.get_label(): h for ax in axes for h in ax.get_lines()}
        figure.legend(
            [handles[name] for name in names],
            names,
            loc="outside lower center",
            frameon=False,
            ncols=min(len(names), 4),
        )
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})
    text = "\n".join(line.rstrip() for line in path.read_text(encoding="utf-8").splitlines())
    path.write_text(f"{text}\n{mark(panels)}\n", encoding="utf-8")


# --- records ---------------------------------------------------------------------------------

# As figures show them; other contestants of `make bench-index` are in its report.
_CONTESTANTS = {
    "densehash": "densehash",
    "symphony": "SymphonyQG",
    "fastscan": "faiss IVF+PQ FastScan",
    "hnsw32": "faiss HNSW32",
    "hnswlib": "hnswlib",
    "usearch": "usearch",
}


def keep(records: dict[str, Any]) -> None:
    """Take what curves need of the records of a benchmark into ours; sets of the same name go."""
    known = json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else {"sets": []}
    sets = {each["set"]: each for each in known["sets"]}
    for each in records["sets"]:
        contestants = {c["name"]: c for c in each["contestants"]}
        ours = contestants["densehash"]
        sets[each["set"]] = {
            "set": each["set"],
            "title": TITLES[each["set"]],
            "rows": each["rows"],
            "features": ours["cost"]["n_features"],
            "metric": each["metric"],
            "contestants": {
                title: [
                    {"recall": round(p["recall"], 4), "speed": round(p["speed"])}
                    for p in sorted(contestants[name]["points"], key=lambda p: p["recall"])
                ]
                for name, title in _CONTESTANTS.items()
                if name in contestants
            },
        }
    ordered = [sets[name] for name in TITLES if name in sets]
    about = records["about"]
    RECORDS.write_text(json.dumps({"about": about, "sets": ordered}, indent=1) + "\n", "utf-8")


def main() -> None:
    """Read the command line, and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=Path, nargs="*", default=[])
    for path in parser.parse_args().records:
        keep(json.loads(path.read_text(encoding="utf-8")))
    for name, drawing in FIGURES.items():
        panels = drawing.panels()
        for look in COLOURS:
            draw(panels, drawing, look, FOLDER / f"{name}-{look}.svg")


if __name__ == "__main__":
    main()
