"""Helpers to fill, damage and compare folders."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from densehash.store.manifest import MANIFEST, Entry, decode, entries_of

Edit = Callable[[dict[str, Any]], Any]


def rows(n: int, seed: int = 0, width: int = 4) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (n, width), dtype=np.uint8)


def small(seed: int = 0, n: int = 6) -> dict[str, Any]:
    """A content with values of every kind."""
    rng = np.random.default_rng(seed)
    return {
        "kind": "flat",
        "n": n,
        "share": 0.25,
        "reason": 'a text with ä, " and \\',
        "nothing": None,
        "yes": True,
        "hasher": {"arrays": {"hasher_.planes_": rng.standard_normal((3, 2))}},
        "segments": [
            {
                "ids": np.arange(n) * 3,
                "names": np.array([b"a", b"bcd"]),
                "codes": rows(n, seed),
                "vectors": rng.standard_normal((n, 2)).astype(np.float16),
                "ranks": rng.permutation(n).astype(np.uint32),
                "removed": np.zeros(0, np.uint32),
                "mask": rng.random(n) < 0.5,
                "bytes": rng.integers(-128, 128, (n, 2), dtype=np.int8),
            },
            {"ids": np.arange(2), "codes": rows(2, seed + 1), "removed": None},
        ],
    }


def assert_equal(found: Any, expected: Any) -> None:
    """Compare trees that contain arrays, including types."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_equal(found[key], value)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, two in zip(found, expected, strict=True):
            assert_equal(one, two)
    elif isinstance(expected, np.ndarray):
        assert type(found) is np.ndarray
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()
        assert not found.flags.writeable
    else:
        assert type(found) is type(expected)
        assert found == expected


def files_of(folder: Path) -> dict[str, bytes]:
    """All bytes of a folder, except the empty lock."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "writer.lock"}


def entries(folder: Path) -> list[Entry]:
    path = folder / MANIFEST
    return list(entries_of(decode(path.read_bytes(), path).content))


def signed(tree: Any) -> bytes:
    """A manifest of any content, with a correct checksum."""
    text = tree if isinstance(tree, bytes) else json.dumps(tree).encode()[1:]
    return b'{"sha256": "' + hashlib.sha256(text).hexdigest().encode() + b'",\n' + text


def edit(folder: Path, change: Edit) -> None:
    """Change the manifest of a folder as an attacker would."""
    path = folder / MANIFEST
    tree = json.loads(path.read_bytes())
    del tree["sha256"]
    change(tree)
    path.write_bytes(signed(tree))


def put(path: Path, data: bytes) -> None:
    """Replace a file by a new one: some file systems flush one that is truncated and rewritten."""
    path.unlink()
    path.write_bytes(data)


@contextmanager
def failing_looks(name: str, number: int, at: int, *, lasting: bool = False) -> Iterator[list[str]]:
    """Look number ``at`` at files of a name fails; the list has the calls of all looks."""
    looks: list[str] = []

    def failing(plain: Callable[..., Any]) -> Callable[..., Any]:
        def look(path: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, (str, os.PathLike)) and Path(path).name == name:
                looks.append(plain.__name__)
                if len(looks) == at or (lasting and len(looks) > at):
                    raise OSError(number, os.strerror(number), str(path))
            return plain(path, *args, **kwargs)

        return look

    with mock.patch.multiple(
        os, stat=failing(os.stat), lstat=failing(os.lstat), open=failing(os.open)
    ):
        yield looks
