"""The manifest of all shards: which shards there are, and what they have in common."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from densehash import disk
from densehash.checks import check_integer
from densehash.distributed.shards import SHARD, UNFINISHED, Home, Seen, discard, marks_of
from densehash.errors import FileError, InputError
from densehash.index.state import State, state_from
from densehash.store import Change, Store
from densehash.store.lockfile import TIMEOUT, lock, never_published
from densehash.store.manifest import SHARDS

__all__ = ["Catalog", "Whole", "catalog_of", "clear_unfinished", "content_with", "sweep"]


class Catalog(NamedTuple):
    """An index in shards at one moment.

    Attributes
    ----------
    home : where the shards are, and marks that they must have
    state : what they have in common: an empty index
    rows : how many rows each shard had when it was written, by name
    """

    home: Home
    state: State
    rows: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Whole(State):
    """What shards have in common, as if all their rows were here."""

    n_rows: int = 0

    @classmethod
    def of(cls, state: State, n_rows: int) -> Whole:
        """A state with this number of rows."""
        return cls(**{one.name: getattr(state, one.name) for one in fields(State)}, n_rows=n_rows)

    @property
    def n_live(self) -> int:
        """How many rows all shards have."""
        return self.n_rows


def content_with(common: Mapping[str, Any], shards: Iterable[Seen]) -> dict[str, Any]:
    """The content of the manifest.

    Parameters
    ----------
    common : what :func:`densehash.index.state.content_of` returns for an empty index, or the old
        content of the manifest, so that its arrays are not written again
    shards : all shards

    Examples
    --------
    >>> content_with({"metric": "l2", "next_id": 0, "segments": []}, [])
    {'metric': 'l2', 'next_id': 0, 'shards': []}
    """
    shards = list(shards)
    content = {name: value for name, value in common.items() if name != "segments"}
    content["next_id"] = max([content["next_id"], *(one.next_id for one in shards)])
    content["shards"] = [{"name": one.name, "rows": one.n_rows} for one in shards]
    return content


def catalog_of(folder: Path, content: Mapping[str, Any]) -> Catalog:
    """The catalog in a manifest; an error if its parts do not fit together."""
    try:
        state = state_from({**content, "segments": []})
        rows: dict[str, int] = {}
        for shard in content["shards"]:
            name = shard["name"]
            if not isinstance(name, str) or not SHARD.fullmatch(name) or name in rows:
                raise FileError(f"a shard cannot be called {name!r}")  # noqa: TRY301
            rows[name] = check_integer(shard["rows"], "rows", 0)
    except (FileError, InputError, LookupError, TypeError) as error:
        raise FileError(f"{folder} cannot be read: {error}") from None
    return Catalog(Home(folder, marks_of(state)), state, rows)


def sweep(folder: Path, change: Change) -> None:
    """Remove shards that the manifest does not name, and unfinished ones.

    Nothing is removed if the manifest cannot be read, or if somebody has removed the lock file, so
    that others may be writing shards at the same time.

    Parameters
    ----------
    folder : the folder of the shards
    change : the right to write to it

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, Store.creating(folder, form=SHARDS) as change:
    ...     sweep(Path(folder), change)
    """
    with suppress(OSError):
        if change.is_alone():
            _sweep(folder)


def _sweep(folder: Path) -> None:
    named: Iterable[str] = ()
    if not never_published(folder):
        named = catalog_of(folder, Store.open(folder, form=SHARDS).content).rows
    for path in folder.iterdir():
        if UNFINISHED.fullmatch(path.name):
            discard(path)
        elif SHARD.fullmatch(path.name) and path.name not in named:
            shutil.rmtree(path, ignore_errors=True)


def clear_unfinished(folder: Path) -> None:
    """Remove what a killed first build has left in a folder, which has no manifest.

    Examples
    --------
    >>> clear_unfinished(Path("no-such-folder"))
    """
    if _is_left(folder):
        with lock(folder, TIMEOUT), disk.writing(folder):
            if _is_left(folder):  # otherwise another process was faster
                _sweep(folder)


def _is_left(folder: Path) -> bool:
    with suppress(NotADirectoryError):
        return never_published(folder)
    return False
