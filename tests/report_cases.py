"""A page with all that a report can show, for the tests of reports."""

from __future__ import annotations

import math

import numpy as np

from densehash.report import Column, Figure, Page, PlaneFigure, Section, Series, Table

METHODS = (
    *("LSH", "KLSH", "SIKH", "PCAH", "SpH", "AGH", "DSH", "DSH contrast", "ITQ"),
    *("Refined(DSH)", "Refined(ITQ)"),
)
BITS = (8, 16, 24, 32, 48, 64)

# Text that would inject code into a page if it is not escaped, or break the page.
HOSTILE = [
    "<script>document.title = 'taken'</script>",
    "</script><script>document.title = 'taken'</script>",
    '"><img src=x onerror="document.title = \'taken\'">',
    "' onclick='document.title = 1' x='",
    "</style></title></textarea><!-- <![CDATA[ ]]> -->",
    "&lt;b&gt; &amp; \u2028\u2029 \x00\x1b\x7f \udcff",
    "${document.title = 'taken'} {{1}} `1` \\u003cb> javascript:alert(1)",
]


def accuracy(name: str, title: str, seed: int) -> Figure:
    """MAP by bits of every method, with spreads; one series lacks points, one has no spread."""
    generator = np.random.default_rng(seed)
    series = []
    for at, method in enumerate(METHODS):
        high = 0.12 + 0.035 * at + generator.uniform(-0.04, 0.04)
        bits = BITS[1:4] if method == "KLSH" else BITS
        y = tuple(high * (1 - math.exp(-b / 22)) + float(generator.normal(0, 0.004)) for b in bits)
        spread = tuple(float(s) for s in generator.uniform(0.003, 0.012, len(bits)))
        series.append(Series(method, bits, y, () if method == "PCAH" else spread))
    return Figure(
        name,
        title,
        "code length in bits",
        "mean average precision",
        tuple(series),
        f"Mean average precision of all codes on {title}, mean and standard deviation of 3 seeds.",
    )


def curves(name: str, title: str, seed: int) -> Figure:
    """Precision by recall: many points, no spread."""
    generator = np.random.default_rng(seed)
    recall = tuple(float(r) for r in np.linspace(0.02, 1, 12))
    series = tuple(
        Series(
            method,
            recall,
            tuple(
                (0.35 + 0.05 * at) * (1 - r) ** generator.uniform(0.8, 1.6) + 0.02 for r in recall
            ),
        )
        for at, method in enumerate(METHODS)
    )
    return Figure(
        name, title, "recall", "precision", series, f"Precision over recall on {title} at 48 bits."
    )


def times() -> Figure:
    """Seconds by rows: logarithmic axes, a spread below zero, a single point with a spread."""
    rows = (1_000, 10_000, 100_000, 1_000_000)
    series = [
        Series(
            method,
            rows,
            tuple(0.002 * (at + 1) * n**0.7 / 30 for n in rows),
            tuple(0.0004 * (at + 1) * n**0.7 / 30 for n in rows),
        )
        for at, method in enumerate(METHODS[3:9])
    ]
    series.append(Series("faiss PQ", (100_000,), (9.0,), (20.0,)))
    series.append(Series("my own", rows, (0.01, 0.1, 0.9, 11.0), (None, 0.02, None, None)))
    return Figure(
        *("fit-times", "Time to learn", "rows", "seconds"),
        tuple(series),
        "Time to learn 64 bits, by the number of rows.",
        log_x=True,
        log_y=True,
    )


def plane(name: str = "plane") -> PlaneFigure:
    """Four groups of points and two lines between them."""
    generator = np.random.default_rng(5)
    centers = [(0.0, 0.0), (3.0, 0.4), (0.2, 2.5), (3.4, 2.8)]
    points = np.concatenate([generator.normal(center, 0.55, (40, 2)) for center in centers])
    x, y = (tuple(float(number) for number in points[:, axis]) for axis in (0, 1))
    groups = tuple(code for code in ("00", "01", "10", "11") for _ in range(40))
    return PlaneFigure(
        *(name, "Two planes of DSH in the plane", x, y, groups),
        lines=((-2.0, 1.2, 5.5, 1.7), (1.5, -3.0, 1.8, 5.0)),
        caption="Each plane lies halfway between two neighbouring groups of points.",
    )


def results() -> Table:
    """Numbers of two kinds, a text column, missing cells, ties for the best."""
    rows: list[tuple[str | float | None, ...]] = [
        (method, "GIST1M" if at % 2 else "SIFT1M", 0.1 + 0.03 * at, 120.5 / (at + 1), 1000.0 * at)
        for at, method in enumerate(METHODS)
    ]
    rows[2] = ("SIKH", "SIFT1M", None, 9.5, None)
    rows[9] = ("Refined(DSH)", "GIST1M", 0.4, 100.25, 9000.0)
    rows[10] = ("Refined(ITQ)", "SIFT1M", 0.4000001, 5.0, 10_000.0)
    return Table(
        "results",
        "Accuracy and time at 64 bits",
        (
            Column("method"),
            Column("set"),
            Column("MAP", 3, "most"),
            Column("seconds", 1, "least"),
            Column("rows", 0),
        ),
        tuple(rows),
        "The best of each column is marked; a dash stands where nothing was measured.",
    )


def wide() -> Table:
    """More columns than fit a phone, more rows than fit a screen."""
    generator = np.random.default_rng(7)
    columns = (Column("method"), *(Column(f"{bits} bits", 4, "most") for bits in range(8, 136, 8)))
    rows: tuple[tuple[str | float, ...], ...] = tuple(
        (f"{method}, seed {seed}", *(float(number) for number in generator.uniform(0, 1, 16)))
        for method in METHODS
        for seed in range(4)
    )
    return Table("all-seeds", "Every seed", columns, rows)


def rich_page() -> Page:
    """Sections with all of these, and facts."""
    return Page(
        "Density sensitive hashing: all results",
        (
            Section(
                "Accuracy by code length",
                (
                    accuracy("map-gist", "GIST1M", 0),
                    accuracy("map-flickr", "Flickr1M", 1),
                    accuracy("map-sift", "SIFT1M", 2),
                    results(),
                ),
                "Longer codes find more of the true neighbours. What was learned from the density "
                "of the rows goes on gaining where random planes need many more bits.\n\n"
                "Each point is a mean over seeds; the band around a line is one standard "
                "deviation to either side.",
            ),
            Section(
                "Precision and recall",
                (curves("curve-gist", "GIST1M", 3), curves("curve-sift", "SIFT1M", 4)),
                "All codes are ranked by Hamming distance.",
            ),
            Section("Time", (times(),), "Measured on one machine, all methods in one run."),
            Section("How planes are chosen", (plane(), plane("plane-again"), wide())),
        ),
        "Eleven ways to turn vectors into bits, on three sets of a million rows each. The dots "
        "answer the pointer; a click in a legend hides a method.",
        {
            "machine": "8 cores, 32 GB",
            "versions": "densehash 0.1.0, numpy 2.1.0, Python 3.12.4",
            "seeds": "0, 1, 2",
            "command": "densehash paper --set gist1m --set flickr1m --set sift1m --seeds 3 "
            "--records records.jsonl --report report.html",
        },
    )


def page_saying(words: str) -> Page:
    """A page with the same words in every place for text."""
    line = Figure("line", words, words, words, (Series(words, (1.0, 2.0), (3.0, 4.0)),), words)
    dots = PlaneFigure("dots", words, (0.0, 1.0), (0.0, 1.0), (words, words), (), words)
    table = Table("table", words, (Column(words), Column(words, 1)), ((words, 1.0),), words)
    return Page(words, (Section(words, (line, dots, table), words),), words, {words: words})
