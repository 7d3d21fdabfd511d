"""The tables of the benchmark of the index, and its page."""

from __future__ import annotations

from pathlib import Path

from hashers import Fact
from index_peers import K
from index_results import RECALL, Measured, Results, front
from rich.box import SIMPLE_HEAD
from rich.table import Table as ConsoleTable

from densehash.report import (
    Column,
    Figure,
    Page,
    Section,
    Series,
    Table,
    write_figures,
    write_report,
)

LEAST_SHOWN = 0.8  # below that recall nobody wants an index

Cell = str | float | None

COLUMNS = (
    Column("index"),
    Column("queries a second", 0, "most"),
    Column("recall", 3),
    Column("with"),
    Column("build, s", 1, "least"),
    Column("peak MB", 0, "least"),
    Column("bytes a row", 0, "least"),
    Column("without vectors", 0, "least"),
    Column("on disk", 0, "least"),
    Column("open, ms", 1, "least"),
)


def cells(each: Measured) -> tuple[Cell, ...]:
    """One row of the table of costs."""
    cost, fastest = each.cost, each.fastest
    return (
        each.contestant.title,
        fastest.speed if fastest else None,
        fastest.recall if fastest else None,
        str(fastest) if fastest else None,
        cost.build_s,
        cost.peak / 1e6,
        cost.resident / cost.n_rows,
        each.bytes_without_vectors,
        None if cost.disk is None else cost.disk / cost.n_rows,
        None if cost.open_s is None else 1e3 * cost.open_s,
    )


def tuned_cells(each: Measured) -> tuple[Cell, ...] | None:
    """How it did after it had tuned itself."""
    if each.tuned is None:
        return None
    name = f"{each.contestant.title}, tuned"
    return (name, each.tuned.speed, each.tuned.recall, *[None] * (len(COLUMNS) - 3))


def rows(results: Results) -> tuple[tuple[Cell, ...], ...]:
    measured = results.measured.values()
    tuned = [row for each in measured if (row := tuned_cells(each))]
    return (*map(cells, measured), *tuned)


def texts(results: Results) -> list[list[str]]:
    """The rows as text."""
    return [
        [as_text(cell, column) for cell, column in zip(row, COLUMNS, strict=True)]
        for row in rows(results)
    ]


def as_text(cell: Cell, column: Column) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else f"{cell:,.{column.digits}f}"


def costs_title(results: Results) -> str:
    return (
        f"The fastest with recall@{K} ≥ {RECALL:g}, and what each costs: "
        f"{results.n_rows:,} rows, {results.n_queries:,} queries"
    )


def costs_table(results: Results) -> ConsoleTable:
    table = ConsoleTable(title=costs_title(results), box=SIMPLE_HEAD)
    for column in COLUMNS:
        right = column.digits is not None
        table.add_column(column.title, justify="right" if right else "left", no_wrap=True)
    for line in texts(results):
        table.add_row(*line)
    return table


def costs_markdown(results: Results) -> str:
    heads = [column.title for column in COLUMNS]
    rules = ["---" if column.digits is None else "---:" for column in COLUMNS]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, rules, *texts(results)))


# The page


def page(results: Results, facts: list[Fact], about: dict[str, str]) -> Page:
    sections = [Section("What was asked for", (facts_of(facts),))] if facts else []
    if results.measured:
        sections.append(Section("Recall and speed", tuple(figures(results))))
        sections.append(Section("Costs", (costs_of(results),)))
    return Page(
        "densehash: the index beside others",
        tuple(sections),
        f"{results.n_rows:,} rows of SIFT, {K} neighbours of each of {results.n_queries:,} "
        "queries (scikit-learn: of 500), all in one call, one thread. hnswlib and usearch were "
        "built with half of their usual effort, which costs them up to 0.01 of recall.",
        about,
    )


def facts_of(facts: list[Fact]) -> Table:
    return Table(
        "targets",
        "Each measured in this run",
        (Column("what"), Column("measured"), Column("required"), Column("met")),
        tuple(
            (fact.what, fact.measured, fact.required, "yes" if fact.met else "NO") for fact in facts
        ),
    )


def figures(results: Results) -> list[Figure]:
    return [
        Figure(
            f"recall-from-{round(100 * least)}",
            f"Recall from {least:g} on",
            f"recall@{K}",
            "queries a second",
            tuple(series),
            "Each point is a setting that no other one of the same index beats in both. "
            "Higher and farther to the right is better.",
            log_y=True,
        )
        for least in (LEAST_SHOWN, 0.9)
        if (series := curves(results, least))
    ]


def curves(results: Results, least: float) -> list[Series]:
    found = []
    for each in results.measured.values():
        points = [point for point in front(each.points) if point.recall >= least]
        if points:
            x, y = zip(*((point.recall, point.speed) for point in points), strict=True)
            found.append(Series(each.contestant.title, x, y))
    return found


def costs_of(results: Results) -> Table:
    return Table(
        "costs",
        costs_title(results),
        COLUMNS,
        rows(results),
        "Built by two threads; peak is what a build takes beyond its input; bytes a row count what "
        "stays in memory, with the vectors and without them, and the files.",
    )


def write_page(
    results: Results, facts: list[Fact], about: dict[str, str], folder: Path
) -> list[Path]:
    """Write report.html and the figures to a folder that is there."""
    made = page(results, facts, about)
    write_report(made, folder / "report.html")
    return [folder / "report.html", *write_figures(made, folder)]
