"""Shared by ``paper`` and ``compare``: lists in arguments, tables in the terminal, files."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as TerminalTable

from densehash.bits import MAX_BITS
from densehash.disk import write_file
from densehash.errors import FileError, InputError, MissingExtraError
from densehash.paper.methods import METHODS, check_methods
from densehash.paper.records import Records
from densehash.report import Page, Table, write_figures, write_report

__all__ = ["make_folder", "open_records", "parse_bits", "parse_methods", "show", "write_page"]

_SHORT = 20  # text up to this many characters is never wrapped
_WIDE = 160


def parse_bits(text: str) -> tuple[int, ...]:
    """Code lengths from a text such as ``"32,64"``."""
    lengths = []
    for part in text.split(","):
        if not part.strip().isdecimal() or not 1 <= int(part) <= MAX_BITS:
            raise InputError(
                f"--bits must be numbers from 1 to {MAX_BITS} with commas between them, "
                f"got {text!r}"
            )
        lengths.append(int(part))
    return tuple(sorted(set(lengths)))


def parse_methods(text: str | None) -> tuple[str, ...]:
    """Methods from a text such as ``"dsh,itq"``; None: all hashers."""
    return METHODS if text is None else check_methods(text.split(","))


def make_folder(path: Path) -> Path:
    """Make a folder, and check that it can be written to, before any work is done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".densehash-probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise FileError(f"{path} cannot be written to: {error.strerror}") from None
    return path


def open_records(folder: Path) -> Records:
    """The records of a folder; a message on stderr says if lines were skipped."""
    path = folder / "records.jsonl"
    records = Records(path)
    if records.passed_over:
        typer.echo(f"{path}: {records.passed_over} line(s) cannot be read, passed over", err=True)
    return records


def write_page(page: Page, folder: Path) -> Path | None:
    """Write the report and its figures; if the extra is missing, say so on stderr and return None.

    The numbers behind the figures are always written, as ``report.json``.
    """
    numbers = folder / "report.json"
    try:
        write_file(numbers, json.dumps(asdict(page), indent=1).encode("utf-8"))
        path = folder / "report.html"
        write_report(page, path)
        write_figures(page, folder / "figures")
    except MissingExtraError as error:
        typer.echo(f"no report was drawn: {error}; the numbers are in {numbers}", err=True)
        return None
    return path


def show(table: Table) -> None:
    """Print a table of the report; in a pipe, it is as wide as necessary."""
    console = Console() if sys.stdout.isatty() else Console(width=_WIDE)
    shown = TerminalTable(
        title=escape(table.title),
        caption=escape(table.caption) or None,
        box=SIMPLE_HEAD,
        pad_edge=False,
        title_justify="left",
        caption_justify="left",
    )
    best = [_best(table, column) for column in range(len(table.columns))]
    for at, column in enumerate(table.columns):
        if column.digits is None:
            longest = max((len(str(row[at])) for row in table.rows), default=0)
            shown.add_column(escape(column.title), no_wrap=longest <= _SHORT)
        else:
            shown.add_column(escape(column.title), justify="right")
    for row in table.rows:
        cells = []
        for at, (column, cell) in enumerate(zip(table.columns, row, strict=True)):
            if cell is None:
                cells.append("–")
            elif isinstance(cell, str) or column.digits is None:
                cells.append(escape(str(cell)))
            else:
                number = f"{cell:,.{column.digits}f}"
                number = number.removeprefix("0") if column.digits else number
                cells.append(f"[bold]{number}[/bold]" if cell == best[at] else number)
        shown.add_row(*cells)
    console.print(shown)


def _best(table: Table, at: int) -> float | None:
    numbers = [cell for row in table.rows if isinstance(cell := row[at], (int, float))]
    best = table.columns[at].best
    if not numbers or not best:
        return None
    return max(numbers) if best == "most" else min(numbers)
