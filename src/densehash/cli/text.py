"""Plain text for commands about an index: lines that both people and ``awk`` can read."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

import typer

__all__ = ["aligned", "either", "facts", "printable", "say"]


def say(text: str) -> None:
    """Print lines; characters that the terminal cannot encode are escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    typer.echo(text.encode(encoding, "backslashreplace").decode(encoding))


def printable(text: str) -> str:
    """A text with escapes for unprintable characters, so that it cannot move the cursor."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii")
        for sign in text
    )


def either(words: Iterable[str]) -> str:
    """Words of which one is chosen, as help lists them: a, b or c."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values."""
    width = max(len(name) for name, _ in pairs)
    say("\n".join(f"{name:<{width}}  {printable(value)}" for name, value in pairs))


def aligned(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[int] = ()
) -> Iterator[str]:
    """Lines of a table, the header first.

    Parameters
    ----------
    header : names of the columns
    rows : their cells
    left : positions of the columns that are aligned to the left; all others are to the right
    """
    lines = [header, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            f"{cell:<{width}}" if at in left else f"{cell:>{width}}"
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
