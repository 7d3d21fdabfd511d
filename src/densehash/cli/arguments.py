"""Arguments that several commands about an index share, and the ids that files and words name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from densehash.errors import FileError, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["column_names", "parse_ids", "read_ids"]

IndexPath = Annotated[Path, typer.Argument(help="The folder of an index.")]
Key = Annotated[
    str | None,
    typer.Option(help="An array or column inside the file of vectors, where it has several."),
]
Method = Annotated[
    str, typer.Option(help="The method: dsh, itq, lsh, ...; auto is one that suits most rows.")
]
Bits = Annotated[int | None, typer.Option(help="Bits of a code, 1 to 4096; 256 without it.")]
Metric = Annotated[
    str | None, typer.Option(help="l2, cosine or ip (inner product); the index's own without it.")
]
Threads = Annotated[int | None, typer.Option(help="How many threads; one for each CPU without it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]

Ids: TypeAlias = "NDArray[Any] | list[str]"

# A number as it is written by whoever counts: 007 is a name.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_LARGEST = 2**63 - 1


def read_ids(path: Path, id_type: str | None = None) -> Ids:
    """Ids from a file: an array in ``.npy``, or else text in UTF-8, one id a line.

    Parameters
    ----------
    path : the file
    id_type : "int64" or "string", of the index that has them; None takes them for numbers where
        all lines are numbers
    """
    if path.suffix.lower() == ".npy":
        return _read_array(path)
    lines = _read_lines(path)
    if "" in lines:
        raise FileError(f"{path}: line {lines.index('') + 1} is empty, expected one id a line")
    return _parsed(lines, id_type, lambda at: f"{path}: line {at + 1}")


def column_names(said: str, option: str) -> list[str] | None:
    """Names of columns, separated by commas; None for "all"."""
    if said == "all":
        return None
    names = [name.strip() for name in said.split(",")]
    if "" in names or len(set(names)) < len(names):
        raise InputError(f"{option} must be different columns, as title,year, or all, got {said!r}")
    return names


def parse_ids(words: Sequence[str], id_type: str) -> Ids:
    """Ids that are words of the command line, of an index that has ids of a type."""
    return _parsed(list(words), id_type, lambda _: "an id")


def _parsed(words: list[str], id_type: str | None, where: Callable[[int], str]) -> Ids:
    if id_type == "string":
        return words
    import numpy as np  # noqa: PLC0415  `densehash --help` does without

    numbers = np.empty(len(words), np.int64)
    for at, word in enumerate(words):
        if not _NUMBER.fullmatch(word) or int(word) > _LARGEST:
            if id_type is None:
                return words
            raise InputError(
                f"{where(at)} must be an integer, as all ids of the index, got {word[:40]!r}"
            )
        numbers[at] = int(word)
    return numbers


def _read_lines(path: Path) -> list[str]:
    try:
        data = path.read_bytes()  # of a pipe, too: --ids <(cut -f1 table.tsv)
    except FileNotFoundError:
        raise FileError(f"{path} does not exist") from None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise FileError(f"{path}: line {line} is no UTF-8, expected one id a line") from None
    # Not splitlines: an id may hold other signs that Unicode counts as ends of lines.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def _read_array(path: Path) -> NDArray[Any]:
    import numpy as np  # noqa: PLC0415  `densehash --help` does without

    if not path.exists():
        raise FileError(f"{path} does not exist")
    if not path.is_file():  # a pipe would wait
        raise FileError(f"{path} is not a regular file, expected one")
    try:
        # Mapped, so that a header that lies cannot ask for memory; objects are refused.
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, TypeError, OverflowError, EOFError, OSError) as error:
        raise FileError(f"{path} cannot be read as an array of ids: {error}") from None
