"""One shard on a worker: an ordinary index folder, which is opened again only if it has changed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densehash import disk
from densehash.errors import FileError
from densehash.index import Index
from densehash.index.columns import in_words
from densehash.index.ids import no_ids
from densehash.index.kinds import Kind
from densehash.index.sketches import Sketch
from densehash.index.state import State, content_of, state_at
from densehash.locks import new_lock
from densehash.store import Store
from densehash.store import verify as verify_folder
from densehash.store.manifest import INDEX, MANIFEST
from densehash.store.reading import find_manifest

__all__ = [
    "SHARD",
    "UNFINISHED",
    "Home",
    "Opened",
    "Seen",
    "check_same",
    "discard",
    "lost",
    "marks_of",
    "new_name",
    "open_shard",
    "place_shard",
    "seen",
    "together",
    "writing_shards",
    "wrong_with",
]

SHARD = re.compile(r"shard-[0-9a-f]{16}")
"""Names of shards."""

UNFINISHED = re.compile(r"\.shards?-[0-9a-f]{16}(-[0-9a-f]{16})?\.part")
"""Names of folders in which workers write shards; once, each shard had its own."""

# Open shards of this process. They hold maps of files, which take hardly any memory.
_MOST_OPEN = 256
_open: OrderedDict[str, Opened] = OrderedDict()
_models: dict[str, tuple[Sketch, Kind]] = {}
# Shards that were searched together, as segments of one index. Each is made once, because a sketch
# keeps the searcher of the segments that it has searched last.
_MOST_TOGETHER = 4
_together: OrderedDict[tuple[Path, tuple[tuple[str, str], ...]], State] = OrderedDict()
_lock = new_lock()

_LOOK = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_SETTLED = 2 * 10**9  # nanoseconds; the clocks of file systems are finer than this

_N_SAMPLED = 64  # ids of a segment that show how its ids are spread
_NO_MATTER = {"random_state", "verbose"}  # parameters that do not matter after a fit


class Home(NamedTuple):
    """Where shards are, and what they have in common.

    Attributes
    ----------
    folder : the folder of all shards
    marks : what :func:`marks_of` returns for each of them
    """

    folder: Path
    marks: dict[str, str]


class Opened(NamedTuple):
    """A shard as it was when it was opened.

    Attributes
    ----------
    mark : the mark of its state
    state : its rows; all shards of this process share the sketch and the kind
    n_bytes : bytes on disk
    manifest : all bytes of its manifest, which shows whether it has changed
    stamp : times and size of the manifest file; None if they might not show a change
    """

    mark: str
    state: State
    n_bytes: int
    manifest: bytes
    stamp: tuple[int, ...] | None = None


class Seen(NamedTuple):
    """A shard as a worker has seen it.

    Attributes
    ----------
    name : name of the shard
    lost : why it cannot be read, or None
    mark : the mark of its state
    n_rows : how many rows it has
    next_id : the first number that was never an id
    ids : some of its ids, rising, with the first and the last; int64 or bytes
    n_bytes : bytes on disk
    """

    name: str
    lost: str | None
    mark: str
    n_rows: int
    next_id: int
    ids: NDArray[Any]
    n_bytes: int


# --- what shards have in common -------------------------------------------------------------


def marks_of(state: State) -> dict[str, str]:
    """What all shards of an index must have in common, as words or checksums."""
    content = content_of(replace(state, segments=()))
    return {
        "sketch": state.sketch.name,
        "hasher": _digest(content.get("hasher")),
        "decoder": _digest(content.get("sketch_settings")),
        "kind": content["kind"],
        "settings of its kind": _digest(content["kind_settings"]),
        "metric": content["metric"],
        "type of ids": content["ids"],
        "type of vectors": str(content["vectors"]),
        "payload": "none" if state.payload is None else in_words(state.payload),
    }


def check_same(path: Path, found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Refuse an index that does not fit the other shards; the error says what differs.

    Examples
    --------
    >>> check_same(Path("a"), {"metric": "l2"}, {"metric": "ip"})
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: a is no shard of this index: its metric is 'l2', expected 'ip'
    """
    differing = [
        f"its {name} is {'another one' if len(value) == 64 else repr(value)}"
        + ("" if len(value) == 64 else f", expected {expected[name]!r}")
        for name, value in found.items()
        if value != expected[name]
    ]
    if differing:
        raise FileError(f"{path} is no shard of this index: {'; '.join(differing)}")


def _digest(tree: Any) -> str:
    digest = hashlib.sha256()
    _add(digest, tree)
    return digest.hexdigest()


def _add(digest: Any, tree: Any) -> None:
    """Add plain values and arrays to a checksum, with marks between them."""
    if isinstance(tree, Mapping):
        for key in sorted(set(tree) - _NO_MATTER):
            digest.update(json.dumps(key).encode())
            _add(digest, tree[key])
    elif isinstance(tree, np.ndarray):
        digest.update(f"{tree.dtype.str}{tree.shape}".encode())
        digest.update(np.ascontiguousarray(tree).data)
    else:
        digest.update(json.dumps(tree).encode())
    digest.update(b";")


# --- reading ------------------------------------------------------------------------------


def open_shard(home: Home, name: str, *, payload: bool = False) -> Opened:
    """A shard as it is now; an open one is opened again only if it has changed.

    Parameters
    ----------
    home : where it is
    name : name of the shard
    payload : whether its payload will be read; it is checked first, so that an error can name the
        shard

    Raises
    ------
    FileError : if the shard is missing or damaged, or does not fit the other shards

    Examples
    --------
    >>> open_shard(Home(Path("/no-such-folder"), {}), "shard-0123456789abcdef")
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: /no-such-folder/shard-0123456789abcdef is not there
    """
    found = _opened(home, name)
    if payload:
        try:
            for segment in found.state.segments:
                if segment.payload is not None:
                    segment.payload.check()
        except FileError as error:
            raise FileError(f"{home.folder / name}: {error}") from None
    return found


def _opened(home: Home, name: str) -> Opened:
    key = os.path.join(home.folder, name)  # noqa: PTH118  faster than Path, in every search
    with _lock:
        found = _open.get(key)
    stamp = _stamp_of(key)
    if found is not None and stamp is not None and found.stamp == stamp:
        return found
    path = Path(key)
    manifest = _manifest_of(path)
    if found is None or found.manifest != manifest:
        store = Store.open(path, form=INDEX)
        state = state_at(path, store.content)
        marks = marks_of(state)
        check_same(path, marks, home.marks)
        found = Opened(store.mark, _shared(state, marks), store.n_bytes, manifest)
    found = found._replace(stamp=stamp)
    with _lock:
        _open[key] = found
        _open.move_to_end(key)
        if len(_open) > _MOST_OPEN:
            _open.popitem(last=False)
    return found


def together(home: Home, shards: Mapping[str, Opened]) -> State:
    """One index of the rows of some shards, at least one; their ids differ."""
    key = home.folder, tuple((name, one.mark) for name, one in shards.items())
    with _lock:
        found = _together.pop(key, None)
        if found is None:
            states = [one.state for one in shards.values()]
            segments = [segment for state in states for segment in state.segments]
            # If the ids of shards follow each other, rows of equal distance are ordered by id.
            segments.sort(key=lambda segment: segment.ids[0].item())
            found = replace(states[0], segments=tuple(segments))
        _together[key] = found
        if len(_together) > _MOST_TOGETHER:
            _together.popitem(last=False)
    return found


def _stamp_of(shard: str) -> tuple[int, ...] | None:
    """Times and size of a manifest, which show a change without reading it; None if they might not.

    Two changes in quick succession may leave the same times, so new files have no stamp.
    """
    try:  # opened, because a network file system then asks its server
        descriptor = os.open(os.path.join(shard, MANIFEST), _LOOK)  # noqa: PTH118
    except OSError:  # opening the shard will say what is wrong
        return None
    try:
        about = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    times = about.st_mtime_ns, about.st_ctime_ns
    if time.time_ns() - max(times) < _SETTLED:
        return None
    return about.st_dev, about.st_ino, about.st_size, *times


def _manifest_of(path: Path) -> bytes:
    """The manifest, read before the shard is opened: the next call then sees a change between."""
    with suppress(FileError):  # opening the shard will say what is wrong
        return find_manifest(path) or b""
    return b""


def _shared(state: State, marks: Mapping[str, str]) -> State:
    """The same rows, with the sketch and the kind of shards that were opened before."""
    key = "".join(marks.values())
    with _lock:
        if len(_models) > 8:
            _models.clear()
        sketch, kind = _models.setdefault(key, (state.sketch, state.kind))
    return replace(state, sketch=sketch, kind=kind)


def seen(home: Home, name: str) -> Seen:
    """A shard as it is now, or why it cannot be read.

    Examples
    --------
    >>> seen(Home(Path("/no-such-folder"), {}), "shard-0123456789abcdef").lost
    '/no-such-folder/shard-0123456789abcdef is not there'
    """
    try:
        mark, state, n_bytes, *_ = open_shard(home, name)
    except FileError as error:
        return lost(name, error)
    some = [
        ids[np.linspace(0, len(ids) - 1, min(len(ids), _N_SAMPLED)).astype(int)]
        for ids in (segment.live_ids for segment in state.segments)
    ]
    ids = np.sort(np.concatenate([no_ids(state.id_type), *some]))
    return Seen(name, None, mark, state.n_live, state.next_id, ids, n_bytes)


def wrong_with(home: Home, name: str) -> str | None:
    """What is wrong with a shard, after every byte was read; None if nothing is."""
    try:
        open_shard(home, name)
        verify_folder(home.folder / name)
    except FileError as error:
        return str(error)
    return None


def lost(name: str, error: FileError) -> Seen:
    """A shard that cannot be read.

    Examples
    --------
    >>> lost("shard-0123456789abcdef", FileError("it is not there")).n_rows
    0
    """
    return Seen(name, str(error), "", 0, 0, no_ids("int64"), 0)


# --- writing ------------------------------------------------------------------------------


def new_name() -> str:
    """A name for a shard that no other has.

    Examples
    --------
    >>> bool(SHARD.fullmatch(new_name()))
    True
    """
    return f"shard-{secrets.token_hex(8)}"


@contextmanager
def writing_shards(home: Home) -> Iterator[Path]:
    """A folder in which workers write shards, for a ``with`` block. After it, none can add a shard.

    After an error, or if Dask has given up a worker, some may still be writing.

    Raises
    ------
    FileError : if the folder cannot be made
    """
    folder = home.folder / f".shards-{secrets.token_hex(8)}.part"
    with disk.writing(folder):
        folder.mkdir()
    try:
        yield folder
    finally:
        discard(folder)


def discard(folder: Path) -> None:
    """Remove a folder of unfinished shards, also while workers are writing there."""
    gone = folder.with_name(f".shards-{secrets.token_hex(8)}.part")
    with suppress(OSError):
        folder.rename(gone)  # at once: from now on, workers find no place to write to
        shutil.rmtree(gone, ignore_errors=True)


def place_shard(home: Home, unfinished: Path, name: str, index: Index) -> None:
    """Write a shard completely or not at all, even if several workers try, or one tries again.

    Parameters
    ----------
    home : where the shard goes
    unfinished : the folder of :func:`writing_shards`
    name : the name of the shard
    index : its rows

    Raises
    ------
    FileError : if it cannot be written
    """
    if not unfinished.is_dir():
        raise FileError(
            f"{home.folder} is not there: shards must be on storage that all workers share, under "
            "the same path"
        )
    path = home.folder / name
    # Each try has a folder of its own: a worker that Dask has given up may still be writing.
    part = unfinished / f"{name}-{secrets.token_hex(8)}"
    try:
        index.save(part)
        with disk.writing(path):
            try:
                disk.rename(part, path)
            except OSError:
                # Another try may have finished first, with the same rows.
                if not disk.is_there(path / MANIFEST):
                    raise
            disk.sync_folder(home.folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
