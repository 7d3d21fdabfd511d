"""Neighbours of many queries: searches in blocks, and shows results in four forms."""

from __future__ import annotations

import base64
import csv
import datetime as dt
import io
import json
import math
from collections.abc import Callable, Iterator
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import typer
from numpy.typing import NDArray

from densehash.cli.arguments import columns_said
from densehash.cli.text import aligned, say
from densehash.datasets.reading import Vectors
from densehash.disk import replacing
from densehash.errors import InputError
from densehash.index import Hits, Index, Ranges
from densehash.progress import bar

if TYPE_CHECKING:
    from densehash.distributed import ShardedIndex

__all__ = [
    "as_lists",
    "payload_shown",
    "print_csv",
    "print_table",
    "search_blocks",
    "search_shards",
    "shown_columns",
    "write_arrays",
]

Shown: TypeAlias = "list[dict[str, Any]] | None"
"""Columns of the payload of the rows that were found, one dict for each row."""

_BLOCK = 2**14  # queries at a time, so that the progress bar moves
_LINES = 2**12  # printed at a time

_COLUMNS = ("query", "rank", "id", "distance")


def search_shards(
    index: ShardedIndex, missing: set[str], block: NDArray[Any], **asked: Any
) -> Hits | Ranges:
    """Search all shards that can be read; add the names of the others to ``missing``."""
    *found, left_out = index.search(block, **asked)
    missing.update(left_out)
    return Hits(*found) if len(found) == 2 else Ranges(*found)


def search_blocks(search: Callable[..., Any], Q: Vectors, path: Path) -> Hits | Ranges:
    """Search for all queries, in blocks, with a progress bar."""
    parts = []
    with bar(f"searching for {len(Q):,} queries", len(Q), shown=True) as advance:
        for start in range(0, len(Q), _BLOCK):
            block = np.asarray(Q[start : start + _BLOCK])
            bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
            if len(bad):
                raise InputError(f"{path}: row {start + bad[0]} has a number that is not finite")
            parts.append(search(block))
            advance(len(block))
    if isinstance(parts[0], Hits):
        return Hits(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    counts = np.concatenate([np.diff(part.limits) for part in parts])
    return Ranges(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.distances for part in parts]),
    )


# --- the payload --------------------------------------------------------------------------


def shown_columns(index: Index | ShardedIndex, said: str | None) -> list[str] | None:
    """Columns of the payload to show; refuses names that the payload does not have."""
    if said is None:
        return None
    there: dict[str, str] | None = index.info()["payload"]
    if there is None:
        raise InputError("--show: this index has no payload")
    names = columns_said(said, "--show")
    for name in names or ():
        if name not in there:
            raise InputError(f"--show: there is no column {name!r}; there are {', '.join(there)}")
    return list(there) if names is None else names


def payload_shown(
    index: Index | ShardedIndex, found: Hits | Ranges, columns: list[str] | None
) -> Shown:
    """The payload of the rows that were found, for JSON."""
    if columns is None:
        return None
    ids = found.ids.reshape(-1)
    table = index.payload(ids[~_missing(ids)].tolist()).select(columns)
    return [{name: _as_json(value) for name, value in row.items()} for row in table.to_pylist()]


def _as_json(value: Any) -> Any:
    """A value of a payload for JSON: times in ISO 8601, bytes in base64."""
    if isinstance(value, (dt.date, dt.datetime)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _as_cell(value: Any) -> Any:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (bool, list)) else value


# --- what was found, in four forms --------------------------------------------------------


def _numbers(distances: NDArray[Any]) -> NDArray[Any]:
    """Distances as Python numbers in an array of objects; infinite ones become None.

    A float32 gets only its own digits: 0.1, not 0.10000000149.
    """
    if distances.dtype.kind != "f":
        return distances.astype(object)
    numbers = distances.astype(str).astype(np.float64).astype(object)
    numbers[~np.isfinite(distances)] = None
    return numbers


def _missing(ids: NDArray[Any]) -> NDArray[np.bool_]:
    nothing: Any = None if ids.dtype == object else -1
    return np.asarray(ids == nothing)


def as_lists(found: Hits | Ranges, shown: Shown = None) -> dict[str, Any]:
    """Ids, distances and the shown payload, for JSON."""
    ids, distances = found.ids.astype(object), _numbers(found.distances)
    missing = _missing(found.ids)
    ids[missing] = distances[missing] = None
    arrays = {"ids": ids, "distances": distances}
    if shown is not None:
        arrays["payload"] = np.full(ids.shape, None, object)
        beside = np.empty(len(shown), object)
        beside[:] = shown
        arrays["payload"][~missing] = beside
    if isinstance(found, Hits):
        return {name: array.tolist() for name, array in arrays.items()}
    return {
        name: [array[start:stop].tolist() for start, stop in pairwise(found.limits.tolist())]
        for name, array in arrays.items()
    }


def _rows(found: Hits | Ranges, shown: Shown) -> Iterator[tuple[object, ...]]:
    answer = as_lists(found)
    beside = iter(shown or ())
    for query, pair in enumerate(zip(answer["ids"], answer["distances"], strict=True)):
        for rank, (name, distance) in enumerate(zip(*pair, strict=True), start=1):
            if name is not None:
                cells = map(_as_cell, next(beside, {}).values())
                yield query, rank, name, "inf" if distance is None else distance, *cells


def _header(shown: Shown) -> tuple[str, ...]:
    return (*_COLUMNS, *(shown[0] if shown else ()))


def print_table(found: Hits | Ranges, shown: Shown = None) -> None:
    """Print a table for people."""
    rows = [[str(cell) for cell in row] for row in _rows(found, shown)]
    header = _header(shown)
    left = [2] * (found.ids.dtype == object) + [*range(len(_COLUMNS), len(header))]
    lines = aligned(header, rows, left=left)
    while some := list(islice(lines, _LINES)):
        say("\n".join(some))


def print_csv(found: Hits | Ranges, shown: Shown = None) -> None:
    """Print CSV lines for programs."""
    rows = chain([_header(shown)], _rows(found, shown))
    while some := list(islice(rows, _LINES)):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(some)
        typer.echo(text.getvalue().encode(), nl=False)  # UTF-8, whatever the terminal uses


def write_arrays(out: Path, found: Hits | Ranges) -> None:
    """Write an ``.npz`` of ids and distances."""
    arrays = found._asdict()
    if found.ids.dtype == object:  # numpy would pickle strings in an array of objects
        ids = found.ids.copy()
        ids[_missing(ids)] = ""
        arrays["ids"] = ids.astype(np.str_)
    with replacing(out) as part, part.open("wb") as file:
        np.savez(file, **arrays)
