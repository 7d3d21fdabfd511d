"""The tables of the benchmark of the index, and its page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hashers import Fact
from index_peers import K
from index_results import Demand, Race, Results, SetResults, front, title
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

Cell = str | float | None

ABOUT = (
    f"{K} neighbours of each query, one thread; built by two. Each has its fastest setting with "
    "the recall that is asked for; all take turns, and the best time of each counts. One query a "
    "call: the first thousand, each a call of its own. hnswlib and usearch were built with half of "
    "their usual effort, which costs them up to 0.01 of recall; scikit-learn was asked 500 queries."
)
RACE_COLUMNS = (
    Column("index"),
    Column("queries a second", 0, "most"),
    Column("recall", 4),
    Column("with"),
    Column("one query, µs, median", 0, "least"),
    Column("99th percentile", 0, "least"),
)
COST_COLUMNS = (
    Column("index"),
    Column("build, s", 1, "least"),
    Column("peak MB", 0, "least"),
    Column("bytes a row", 0, "least"),
    Column("without vectors", 0, "least"),
    Column("on disk", 0, "least"),
    Column("open, ms", 1, "least"),
    Column("default recall", 4),
    Column("queries a second", 0),
)
FACT_COLUMNS = (Column("what"), Column("measured"), Column("required"), Column("met"))


# Tables, for the terminal and the page


def tables(results: Results) -> Iterator[Table]:
    """The requirements on all sets, the tables of each set, and facts that belong to no set."""
    if len(results.sets) > 1:
        yield overview(results)
    for each in results.sets.values():
        yield from set_tables(each)
    if facts := list(results.facts()):
        yield facts_of(facts, "targets", "Without peers")


def set_tables(results: SetResults) -> Iterator[Table]:
    name = results.vectors.name
    if facts := [demand.fact for demand in results.demands()]:
        yield facts_of(facts, f"{name}-targets", f"{set_title(results)}: what was asked for")
    for race in results.races:
        yield race_of(race, results)
    if results.measured:
        yield costs_of(results)


def overview(results: Results) -> Table:
    """A line for each requirement, a column for each set."""
    of_sets = [{each.what: each for each in one.demands()} for one in results.sets.values()]
    lines = dict.fromkeys(what for demands in of_sets for what in demands)
    return Table(
        "overview",
        "What was asked for on all sets: measured, required, and whether it is met",
        (Column("what"), *(Column(one.vectors.title) for one in results.sets.values())),
        tuple((what, *(brief(demands.get(what)) for demands in of_sets)) for what in lines),
    )


def brief(demand: Demand | None) -> str:
    if demand is None:
        return ""
    return f"{demand.figure} ({demand.required}) {'yes' if demand.met else 'NO'}"


def set_title(results: SetResults) -> str:
    vectors = results.vectors
    by = ", cosine" if vectors.metric == "cosine" else ""
    return f"{vectors.title}{by}, {results.n_rows:,} rows, {results.n_queries:,} queries"


def facts_of(facts: list[Fact], name: str, heading: str) -> Table:
    return Table(
        name,
        heading,
        FACT_COLUMNS,
        tuple(
            (fact.what, fact.measured, fact.required, "yes" if fact.met else "NO") for fact in facts
        ),
    )


def race_of(race: Race, results: SetResults) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, point in sorted(race.points.items(), key=lambda item: -item[1].speed):
        one = race.one_query[name]
        rows.append((title(name), point.speed, point.recall, str(point), one.median, one.p99))
    return Table(
        f"{results.vectors.name}-from-{round(100 * race.target)}",
        f"{set_title(results)}: the fastest with recall@{K} ≥ {race.target:g}, taking turns",
        RACE_COLUMNS,
        tuple(rows),
        absent(results, race),
    )


def absent(results: SetResults, race: Race) -> str:
    """Which contestants are not in the table, and why."""
    never = [
        each.contestant.title
        for name, each in results.measured.items()
        if each.points and name not in race.points
    ]
    parts = [f"Never had that recall: {', '.join(never)}."] if never else []
    if race is results.races[0]:  # only once
        parts += [
            f"{title(name)} is left out: {why.rstrip('.')}." for name, why in results.absent.items()
        ]
    return " ".join(parts)


def costs_of(results: SetResults) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for each in results.measured.values():
        cost, default = each.cost, each.default if each.contestant.is_ours else None
        rows.append(
            (
                each.contestant.title,
                cost.build_s,
                cost.peak / 1e6,
                cost.resident / cost.n_rows,
                each.bytes_without_vectors,
                None if cost.disk is None else cost.disk / cost.n_rows,
                None if cost.open_s is None else 1e3 * cost.open_s,
                default.recall if default else None,
                default.speed if default else None,
            )
        )
    return Table(
        f"{results.vectors.name}-costs",
        f"{set_title(results)}: what each costs",
        COST_COLUMNS,
        tuple(rows),
        "Built by two threads; peak is what a build takes beyond its input; bytes a row count what "
        "stays in memory, with the vectors and without them, and the files. The last two columns "
        "are those of ours without any setting.",
    )


def texts(table: Table) -> list[list[str]]:
    """The rows as text."""
    return [
        [as_text(cell, column) for cell, column in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]


def as_text(cell: Cell, column: Column) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else f"{cell:,.{column.digits}f}"


def for_console(table: Table) -> ConsoleTable:
    made = ConsoleTable(title=table.title, caption=table.caption or None, box=SIMPLE_HEAD)
    for column in table.columns:
        right = column.digits is not None
        made.add_column(column.title, justify="right" if right else "left", no_wrap=True)
    for line in texts(table):
        made.add_row(*line, style="bold red" if line[-1].endswith("NO") else None)
    return made


def for_markdown(table: Table) -> str:
    heads = [column.title for column in table.columns]
    rules = ["---" if column.digits is None else "---:" for column in table.columns]
    lines = "\n".join(f"| {' | '.join(line)} |" for line in (heads, rules, *texts(table)))
    return "\n\n".join(part for part in (table.title, lines, table.caption) if part)


# The page


def page(results: Results, about: dict[str, str]) -> Page:
    sections = [Section("All sets", (overview(results),))] if len(results.sets) > 1 else []
    sections += [
        Section(set_title(each), (*set_figures(each), *set_tables(each)))
        for each in results.sets.values()
    ]
    if facts := list(results.facts()):
        sections.append(Section("Without peers", (facts_of(facts, "targets", "Without peers"),)))
    return Page("densehash: the index beside others", tuple(sections), ABOUT, about)


def set_figures(results: SetResults) -> list[Figure]:
    # An index with a recall below 0.8 is of no use.
    return [
        Figure(
            f"{results.vectors.name}-recall-from-{round(100 * least)}",
            f"{results.vectors.title}: recall from {least:g} on",
            f"recall@{K}",
            "queries a second",
            tuple(series),
            "Each point is a setting that no other one of the same index beats in both. "
            "Higher and farther to the right is better.",
            log_y=True,
        )
        for least in (0.8, 0.94)
        if (series := curves(results, least))
    ]


def curves(results: SetResults, least: float) -> list[Series]:
    found = []
    for each in results.measured.values():
        points = [point for point in front(each.points) if point.recall >= least]
        if points:
            x, y = zip(*((point.recall, point.speed) for point in points), strict=True)
            found.append(Series(each.contestant.title, x, y))
    return found


def write_page(results: Results, about: dict[str, str], folder: Path) -> list[Path]:
    """Write report.html and the figures to an existing folder."""
    made = page(results, about)
    write_report(made, folder / "report.html")
    return [folder / "report.html", *write_figures(made, folder)]
