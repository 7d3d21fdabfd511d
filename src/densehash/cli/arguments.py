"""Arguments that several commands about an index share, and ids from files and arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args

import typer

from densehash.choices import KindName, SketchName
from densehash.cli.text import either
from densehash.errors import FileError, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "column_of_ids",
    "columns_said",
    "ids_of_rows",
    "parse_ids",
    "read_ids",
    "vectors_kept",
]

IndexPath = Annotated[Path, typer.Argument(help="The folder of an index.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        "--column",
        help="An array or column inside the file of vectors, if it has several. If each column has "
        "one number: x,y,z, or 'x*' for all columns whose names begin with x.",
    ),
]
Method = Annotated[
    str, typer.Option(help="The method: dsh, itq, lsh, ...; auto is one that suits most rows.")
]
Bits = Annotated[int | None, typer.Option(help="Bits of a code, 1 to 4096; default 256.")]
SketchBits = Annotated[
    int | None,
    typer.Option(
        "--bits",
        help="How many bits are kept of a row. With signs: a multiple of 8 up to 1024; default 160 "
        "for up to 128 features, 256 for more. With codes: 1 to 4096; default 256.",
    ),
]
Metric = Annotated[
    str | None, typer.Option(help="l2, cosine or ip (inner product); default: the index's own.")
]
OwnMetric = Annotated[str, typer.Option("--metric", help="l2, cosine or ip (inner product).")]
Sketch = Annotated[
    str,
    typer.Option(
        help=f"What is kept of a row: {either(get_args(SketchName))}; auto is signs, or codes if "
        "you name a hasher."
    ),
]
Kind = Annotated[
    str,
    typer.Option(help=f"{either(get_args(KindName))}; auto chooses by the number of rows."),
]
KeepVectors = Annotated[
    str,
    typer.Option(
        help="Vectors to keep for exact re-ranking: own (in their own type), float32, "
        "float16, uint8, int8, or no."
    ),
]
Groups = Annotated[int | None, typer.Option(help="How many groups, for the kind grouped.")]
GroupsARow = Annotated[
    int | None,
    typer.Option(
        "--groups-a-row", help="With signs: in how many groups a row lies, 1 (default) or 2."
    ),
]
Tables = Annotated[int | None, typer.Option(help="How many tables, for the kind multi.")]
Seed = Annotated[int, typer.Option(help="The seed of all random numbers.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing index.")]
PayloadOf = Annotated[
    str | None,
    typer.Option(
        "--payload",
        help="Columns of the file to keep beside its vectors, separated by commas, or all. For "
        "Parquet, Arrow, Feather, CSV, TSV and JSON lines.",
    ),
]
Threads = Annotated[int | None, typer.Option(help="How many threads; default: one for each CPU.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]

IdsOfRows = Annotated[
    str | None,
    typer.Option(
        "--ids",
        help="A column of the file of vectors, or a file of ids: text, one a line, or .npy. If all "
        "ids are numbers, they are kept as numbers, otherwise as strings.",
    ),
]

_KEEP: dict[str, bool | str] = {
    "own": True,
    **{name: name for name in ("float32", "float16", "uint8", "int8")},
    "no": False,
}

Ids: TypeAlias = "NDArray[Any] | list[str]"

# A plain number; 007 is a string.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_LARGEST = 2**63 - 1


def read_ids(path: Path, id_type: str | None = None) -> Ids:
    """Ids from a file: an array in ``.npy``, otherwise text in UTF-8, one id on each line.

    Parameters
    ----------
    path : the file
    id_type : the type of ids of the index, "int64" or "string"; None: numbers if all lines are
        numbers
    """
    if path.suffix.lower() == ".npy":
        return _read_array(path)
    lines = _read_lines(path)
    if "" in lines:
        raise FileError(f"{path}: line {lines.index('') + 1} is empty, expected one id a line")
    return _parsed(lines, id_type, lambda at: f"{path}: line {at + 1}")


def column_of_ids(ids: str | None, vectors: Path) -> str | None:
    """The column of the file of vectors that ``--ids`` names; None if it names a file."""
    from densehash.datasets import column_names  # noqa: PLC0415  `densehash --help` does without

    if ids is None:
        return None
    names = column_names(vectors)
    is_file = Path(ids).exists()
    if ids in names:
        if is_file:
            raise InputError(
                f"--ids {ids} is both a file and a column of {vectors}: write ./{ids} for the file"
            )
        return ids
    if not is_file and names and Path(ids).suffix.lower() not in (".npy", ".txt"):
        some = ", ".join(map(repr, names[:20]))
        raise InputError(f"--ids {ids} is neither a file nor a column of {vectors}: it has {some}")
    return None


def ids_of_rows(ids: str | None, vectors: Path, id_type: str | None = None) -> Ids | None:
    """Ids for a file of vectors, from one of its columns or from another file; or None.

    Parameters
    ----------
    ids : the value of ``--ids``
    vectors : the file of vectors
    id_type : as in :func:`read_ids`
    """
    if ids is None:
        return None
    column = column_of_ids(ids, vectors)
    if column is None:
        return read_ids(Path(ids), id_type)
    from densehash.datasets import read_columns  # noqa: PLC0415

    values: list[Any] = []
    for block in read_columns(vectors, [column]):
        part = block[column]
        values += part.to_pylist() if hasattr(part, "to_pylist") else part
    types = {type(value) for value in values}
    if types == {str}:
        return _parsed(values, id_type, lambda at: f"row {at} of {column!r}")
    if types != {int}:
        found = ", ".join(sorted(kind.__name__ for kind in types))
        raise InputError(
            f"{column!r} of {vectors} must be all integers or all strings, got {found}"
        )
    if id_type == "string":
        return [str(value) for value in values]
    import numpy as np  # noqa: PLC0415

    return np.asarray(values)


def vectors_kept(said: str) -> bool | str:
    """The value of ``--keep-vectors`` in the form for :meth:`densehash.Index.build`."""
    from densehash.checks import check_choice  # noqa: PLC0415  `densehash --help` does without

    check_choice(said, "--keep-vectors", tuple(_KEEP))
    return _KEEP[said]


def columns_said(said: str, option: str) -> list[str] | None:
    """Names of columns, separated by commas; None for "all"."""
    if said == "all":
        return None
    names = [name.strip() for name in said.split(",")]
    if "" in names or len(set(names)) < len(names):
        raise InputError(f"{option} must be different columns, as title,year, or all, got {said!r}")
    return names


def parse_ids(words: Sequence[str], id_type: str) -> Ids:
    """Ids from the command line, converted to the type of ids of the index."""
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
                f"{where(at)} must be an integer, like all ids of the index, got {word[:40]!r}"
            )
        numbers[at] = int(word)
    return numbers


def _read_lines(path: Path) -> list[str]:
    try:
        data = path.read_bytes()  # also from a pipe: --ids <(cut -f1 table.tsv)
    except FileNotFoundError:
        raise FileError(f"{path} does not exist") from None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise FileError(f"{path}: line {line} is not UTF-8, expected one id a line") from None
    # Not splitlines: an id may contain other characters that Unicode counts as line ends.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def _read_array(path: Path) -> NDArray[Any]:
    import numpy as np  # noqa: PLC0415  `densehash --help` does without

    if not path.exists():
        raise FileError(f"{path} does not exist")
    if not path.is_file():  # a pipe would wait
        raise FileError(f"{path} is not a regular file, expected one")
    try:
        # Mapped, so that a false header cannot allocate memory; objects are refused.
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, TypeError, OverflowError, EOFError, OSError) as error:
        raise FileError(f"{path} cannot be read as an array of ids: {error}") from None
