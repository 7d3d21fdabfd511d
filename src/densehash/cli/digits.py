"""Shows what ``densehash demo`` found: pictures and tables in the terminal, or plain values."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from densehash import demo, hamming

__all__ = ["plain", "show"]

SHOWN_QUERIES = 4
SHOWN_NEIGHBOURS = 5


def show(found: demo.DigitsDemo) -> None:
    """Print neighbours, scores and a summary."""
    console = Console()
    console.print(_neighbours_table(found, console.encoding))
    console.print(_scores_table(found))
    console.print(_summary_table(found))


def plain(found: demo.DigitsDemo) -> dict[str, object]:
    """All that was found, for JSON."""
    return {
        "n_bits": found.n_bits,
        "seed": found.seed,
        "n_codes": len(found.digits),
        "n_queries": len(found.query_digits),
        "n_neighbours": demo.N_NEIGHBOURS,
        "n_candidates": demo.N_CANDIDATES,
        "same_digit_exact": found.same_digit_exact,
        "scores": [asdict(score) for score in found.scores],
        "left_out": found.left_out,
        "shown": found.shown,
        "seconds_search": found.seconds_search,
        "seconds_exact": found.seconds_exact,
        "instruction_set": hamming.instruction_set(),
        "queries": [
            {
                "digit": int(found.query_digits[query]),
                "neighbours": found.neighbours[query, : demo.N_NEIGHBOURS].tolist(),
                "distances": found.distances[query, : demo.N_NEIGHBOURS].tolist(),
                "digits": found.digits[found.neighbours[query, : demo.N_NEIGHBOURS]].tolist(),
            }
            for query in range(len(found.query_digits))
        ],
    }


def _neighbours_table(found: demo.DigitsDemo, encoding: str) -> Table:
    title = f"Nearest by Hamming distance, {found.shown}, {found.n_bits} bits"
    table = Table(title=title, show_lines=True)
    table.add_column("query", justify="center")
    for rank in range(1, SHOWN_NEIGHBOURS + 1):
        table.add_column(f"{rank}", justify="center")
    # The first query of each digit, so that no two rows show the same digit.
    firsts = np.sort(np.unique(found.query_digits, return_index=True)[1])
    for query in firsts[:SHOWN_QUERIES]:
        digit = found.query_digits[query]
        cells = [Text(f"{_picture(found.query_pictures[query], encoding)}\n{digit}", style="bold")]
        for rank in range(SHOWN_NEIGHBOURS):
            neighbour = found.neighbours[query, rank]
            picture = _picture(found.pictures[neighbour], encoding)
            same = found.digits[neighbour] == digit
            cells.append(
                Text(
                    f"{picture}\n{found.digits[neighbour]} at {found.distances[query, rank]}",
                    style="green" if same else "red",
                )
            )
        table.add_row(*cells)
    return table


def _picture(pixels: NDArray[np.float32], encoding: str) -> str:
    """Eight by eight pixels as four lines; a character shows two pixels, one above the other."""
    marks = " ▀▄█" if encoding.lower().startswith("utf") else " '.#"
    upper, lower = (pixels.reshape(8, 8)[start::2] >= 7 for start in (0, 1))
    return "\n".join("".join(marks[mark] for mark in line) for line in upper + 2 * lower)


def _scores_table(found: demo.DigitsDemo) -> Table:
    table = Table(
        "method",
        f"same digit\namong {demo.N_NEIGHBOURS} nearest",
        f"recall of {demo.N_NEIGHBOURS}\namong {demo.N_CANDIDATES}",
        "learning, ms",
        "hashing, ms",
        title=f"All methods, {found.n_bits} bits",
    )
    for column in table.columns[1:]:
        column.justify = "right"
    best = max(score.recall for score in found.scores)
    for score in found.scores:
        table.add_row(
            score.method,
            f"{score.same_digit:.1%}",
            f"{score.recall:.1%}",
            f"{1e3 * score.seconds_fit:.1f}",
            f"{1e3 * score.seconds_hash:.2f}",
            style="bold" if score.recall == best else None,
        )
    if found.left_out:
        table.caption = "\n".join(f"{name}: {why}" for name, why in found.left_out.items())
    return table


def _summary_table(found: demo.DigitsDemo) -> Table:
    n_codes, n_queries = len(found.digits), len(found.query_digits)
    width = -(-found.n_bits // 8)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="bold")
    table.add_column()
    for value, meaning in (
        (f"{n_codes}", f"digits of {found.pictures.shape[1]} pixels; {n_queries} others ask"),
        (f"{width} bytes", f"a code, instead of {found.pictures[0].nbytes} bytes a vector"),
        (
            f"{found.same_digit_exact:.1%}",
            f"of the {demo.N_NEIGHBOURS} nearest vectors show the query's digit",
        ),
        (
            f"{1e3 * found.seconds_search:.2f} ms",
            f"to search codes for all queries ({hamming.instruction_set()})",
        ),
        (f"{1e3 * found.seconds_exact:.2f} ms", "to search vectors for all queries"),
    ):
        table.add_row(value, meaning)
    return table
