"""The store and damaged folders: our own error or a right opening, nothing else."""

from __future__ import annotations

import json
import os
import random
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from soak import SOAK
from store_cases import Edit, edit, entries, files_of, put, rows, signed, small

from densehash.errors import FileError
from densehash.store import Store, verify
from densehash.store.manifest import MANIFEST, MOST_BYTES, Manifest, decode, encode

HERE = Path(MANIFEST)


@pytest.fixture(autouse=True)
def _no_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # One array is mapped, all others are read and checked.
    Store.create(tmp_path / "a", {**small(), "mapped": rows(20_000)})
    return tmp_path / "a"


# --- the manifest -------------------------------------------------------------------------


def test_every_cut_is_noticed(folder: Path) -> None:
    data = (folder / MANIFEST).read_bytes()
    for length in range(len(data)):
        with pytest.raises(FileError):
            decode(data[:length], HERE)
    for more in (b"\n", b" ", b"\0", data):
        with pytest.raises(FileError):
            decode(data + more, HERE)
    (folder / MANIFEST).write_bytes(data[:-1])
    for call in (Store.open, verify):
        with pytest.raises(FileError, match="manifest.json is damaged: its checksum is not"):
            call(folder)


def test_every_flipped_bit_is_noticed() -> None:
    data = encode(Manifest(1, {"kind": "flat", "n": 3}))
    for at in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(FileError, match="manifest.json is damaged"):
            decode(bytes(flipped), HERE)


def test_the_manifest_is_json_and_its_first_line_is_the_checksum(folder: Path) -> None:
    data = (folder / MANIFEST).read_bytes()
    assert data.isascii()
    tree = json.loads(data)
    assert list(tree) == ["sha256", "format", "version", "generation", "content"]
    assert data.startswith(f'{{"sha256": "{tree["sha256"]}",\n'.encode())


@pytest.mark.parametrize("version", [4, 10**9])
def test_a_newer_version_is_refused_and_both_are_named(folder: Path, version: int) -> None:
    def newer(tree: dict[str, Any]) -> None:
        tree["version"] = version
        tree["something"] = "new"

    edit(folder, newer)
    before = files_of(folder)
    message = f"has version {version} of the format, and .* reads version 1, 2 and 3: install"
    for call in (Store.open, verify, lambda path: Store.create(path, {})):
        with pytest.raises(FileError, match=message):
            call(folder)
    assert files_of(folder) == before


@pytest.mark.parametrize("version", [0, -1, 1.0, True, "1", None, [1]])
def test_a_version_that_never_was(folder: Path, version: Any) -> None:
    edit(folder, lambda tree: tree.update(version=version))
    with pytest.raises(FileError, match="reads version 1, 2 and 3$"):
        Store.open(folder)


def change_entry(**new: Any) -> Edit:
    return lambda tree: tree["content"]["segments"][0]["codes"].update(new)


NAME = "0123456789abcdef-x.npy"


@pytest.mark.parametrize(
    "file",
    [
        *("../" + NAME, "/etc/passwd", "a/" + NAME, "..", ".", "", "\0", NAME + "\0", NAME + "\n"),
        *("..\\" + NAME, "C:" + NAME, "\\\\server\\share", "0123456789abcdef-../x.npy"),
        *("0123456789ABCDEF-x.npy", "0123456789abcdef-X.npy", "0123456789abcdef-.npy/"),
        *("0123456789abcdef-é.npy", "0123456789abcdef-x.npy ", "x.npy", MANIFEST, "writer.lock"),
        *("0123456789abcdef-" + "x" * 129 + ".npy", "０123456789abcdef-x.npy"),
        *(None, 7, ["x"], {"x": 1}),
    ],
    ids=repr,
)
def test_names_cannot_leave_the_folder(folder: Path, file: Any) -> None:
    edit(folder, change_entry(file=file))
    for call in (Store.open, verify):
        with pytest.raises(FileError, match="codes must name a file of this folder"):
            call(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_entry(dtype="|O"), "must have a type that is listed"),
        (change_entry(dtype="|V8"), "must have a type that is listed"),
        (change_entry(dtype=">f4"), "must have a type that is listed"),
        (change_entry(dtype="<f16"), "must have a type that is listed"),
        (change_entry(dtype="|S0"), "must have a type that is listed"),
        (change_entry(dtype="|S1025"), "must have a type that is listed"),
        (change_entry(dtype="|S99999999999"), "must have a type that is listed"),
        (change_entry(dtype=["<f4"]), "must have a type that is listed"),
        (change_entry(shape=[]), "must have 1 to 4 lengths"),
        (change_entry(shape=[1] * 5), "must have 1 to 4 lengths"),
        (change_entry(shape=[-1, -24]), "must have 1 to 4 lengths"),
        (change_entry(shape=[6.0, 4]), "must have 1 to 4 lengths"),
        (change_entry(shape=[True, 4]), "must have 1 to 4 lengths"),
        (change_entry(shape="64"), "must have 1 to 4 lengths"),
        (change_entry(shape=[2**41]), "must have 1 to 4 lengths"),
        (change_entry(shape=[2**40, 2**40]), "must have 1 to 4 lengths"),
        (change_entry(shape=[2**40, 2**40, 0]), "must have 1 to 4 lengths"),
        (change_entry(shape=[5, 4]), "must have 148 bytes, got 152"),
        (change_entry(shape=[2**40]), "must have 1099511627904 bytes, got 152"),
        (change_entry(bytes=153), "must have 152 bytes, got 153"),
        (change_entry(bytes="152"), "must have 152 bytes"),
        (change_entry(bytes=152.0), "must have 152 bytes"),
        (change_entry(sha256="0" * 63), "must have a sha256"),
        (change_entry(sha256="A" * 64), "must have a sha256"),
        (change_entry(sha256=None), "must have a sha256"),
        (change_entry(checked=1), "is checked"),
        (change_entry(shape=[2**24], bytes=2**24 + 128), "is checked, and larger"),
        (change_entry(more=1), "must have bytes, checked, dtype, file, sha256, shape"),
        (lambda t: t["content"]["segments"][0]["codes"].pop("bytes"), "must have bytes"),
        (lambda t: t["content"].update(file=1), "the content must be an object, and no array"),
        (lambda t: t.update(content=[]), "the content must be an object"),
        (lambda t: t.update(content=None), "the content must be an object"),
        (lambda t: t.pop("content"), "has other parts than version 1"),
        (lambda t: t.pop("generation"), "has other parts than version 1"),
        (lambda t: t.update(more=1), "has other parts than version 1"),
        (lambda t: t.update(generation=0), "generation must be a positive integer"),
        (lambda t: t.update(generation=True), "generation must be a positive integer"),
        (lambda t: t.update(generation=1 << 60), "generation must be a positive integer"),
        (lambda t: t.update(generation="1"), "generation must be a positive integer"),
        (lambda t: t.update(format="zip"), "is not the manifest of a densehash index"),
        (lambda t: t["content"].update(n=1 << 63), "content.n does not fit 64 bits"),
        (lambda t: t["content"].update(n=float("nan")), "NaN is no number"),
        (lambda t: t["content"].update(n=float("inf")), "Infinity is no number"),
        (
            lambda t: t["content"]["segments"].append(t["content"]["segments"][0]),
            "names .* more than once",
        ),
    ],
)
def test_manifests_that_lie(folder: Path, change: Edit, message: str) -> None:
    edit(folder, change)
    before = files_of(folder)
    for call in (Store.open, verify, lambda path: Store.create(path, {})):
        with pytest.raises(FileError, match=message):
            call(folder)
    assert files_of(folder) == before


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"}",
        b"[]",
        b'"a": 1}',
        b'"format": "densehash index", "version": 1, "version": 1}',
        b'"format": "densehash index", "version": 1, "generation": 1, "content": {"n": 1e999}}',
        b'"format": "densehash index", "version": 1, "generation": 1, "content": {"n": '
        + b"9" * 5000
        + b"}}",
        b'"x": ' + b"[" * 100_000,
        b'"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'"x": ' + b'{"x":' * 100_000 + b"1" + b"}" * 100_001,
        b'"x": "' + b"\xff" + b'"}',
        b'"x": "\xc3\xa4"}',
    ],
    ids=range(12),
)
def test_json_that_is_none_of_ours(folder: Path, text: bytes) -> None:
    (folder / MANIFEST).write_bytes(signed(text))
    for call in (Store.open, verify):
        with pytest.raises(FileError):
            call(folder)


def test_a_manifest_that_is_too_large_is_not_read(folder: Path) -> None:
    with (folder / MANIFEST).open("r+b") as file:
        file.truncate(1 << 40)
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match="has 1,099,511,627,776 bytes, expected at most"):
            Store.open(folder)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


def test_sizes_that_lie_allocate_nothing(folder: Path) -> None:
    def huge(tree: dict[str, Any]) -> None:
        entry = tree["content"]["mapped"]
        entry.update(shape=[1 << 40, 1 << 10], bytes=(1 << 50) + 128)

    edit(folder, huge)
    tracemalloc.start()
    try:
        with pytest.raises(
            FileError, match=r"mapped.npy has 80128 bytes, expected 1125899906842752"
        ):
            Store.open(folder)
        with pytest.raises(FileError, match="1 of 12 files are wrong"):
            verify(folder)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


# --- files --------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes of POSIX")
@pytest.mark.parametrize("name", [MANIFEST, "codes", "mapped"])
@pytest.mark.parametrize("what", ["link", "inside", "dangling", "pipe", "folder", "device"])
def test_links_pipes_and_devices_are_refused(folder: Path, name: str, what: str) -> None:
    path = folder / name if name == MANIFEST else next(folder.glob(f"*{name}.npy"))
    outside = folder.parent / "outside"
    outside.write_bytes(path.read_bytes())
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "inside":
        (folder / "other").write_bytes(outside.read_bytes())
        path.symlink_to("other")
    else:
        goal = {"link": outside, "dangling": folder / "nothing", "device": Path("/dev/zero")}
        path.symlink_to(goal[what])
    before = outside.read_bytes()
    for call in (Store.open, verify):
        with pytest.raises(FileError, match="is a link|is not a regular file"):
            call(folder)
    if name == MANIFEST:
        with pytest.raises(FileError, match="is a link|is not a regular file"):
            Store.create(folder, {})
    assert outside.read_bytes() == before


def test_verify_names_every_wrong_file(folder: Path) -> None:
    names = [entry.file for entry in entries(folder)]
    missing, cut, header, payload, longer = names[:5]
    (folder / missing).unlink()
    (folder / cut).write_bytes((folder / cut).read_bytes()[:-1])
    for name, at in ((header, 20), (payload, -1)):
        data = bytearray((folder / name).read_bytes())
        data[at] ^= 1
        (folder / name).write_bytes(data)
    with (folder / longer).open("ab") as file:
        file.write(b"\0")
    with pytest.raises(FileError) as caught:
        verify(folder)
    text = str(caught.value)
    assert "5 of 12 files are wrong" in text
    assert f"{missing} cannot be read: No such file" in text
    assert f"{cut} has " in text
    assert f"{header} is damaged: it does not begin as an array" in text
    assert f"{payload} is damaged: its checksum" in text
    assert f"{longer} has " in text
    assert not any(name in text for name in names[5:])


def test_verify_finds_every_flipped_bit_of_a_file(folder: Path) -> None:
    for entry in entries(folder)[:3]:
        path = folder / entry.file
        data = path.read_bytes()
        for at in range(0, 8 * len(data), 11):
            flipped = bytearray(data)
            flipped[at // 8] ^= 1 << at % 8
            put(path, bytes(flipped))
            for call in (verify, Store.open):  # it is one of those that are checked
                with pytest.raises(FileError, match=entry.file):
                    call(folder)
        put(path, data)
    verify(folder)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Bytes in which something is different, or the same."""
    found = bytearray(data)
    at = chance.randrange(len(found) + 1)
    kind = chance.randrange(6)
    if kind == 0 and data:
        found[at % len(found)] ^= 1 << chance.randrange(8)
    elif kind == 1:
        del found[at:]
    elif kind == 2:
        found[at:at] = chance.randbytes(chance.randint(1, 20))
    elif kind == 3:
        found[at : at + chance.randint(1, 200)] = chance.randbytes(chance.randint(0, 200))
    elif kind == 4:
        other = chance.randrange(len(found) + 1)
        found[at:other] = found[other:at]
    else:
        found += data[at:]
    return bytes(found)


def test_thousands_of_mutations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("densehash.store.changing._SMALL", 250)  # or maps would be large
    chance = random.Random(0)
    folder = tmp_path / "a"
    store = Store.create(folder, {"n": 3, "checked": rows(30), "mapped": rows(100)})
    expected = store.content
    right = files_of(folder)
    mapped = next(name for name in right if name.endswith("mapped.npy"))
    unnoticed = 0
    for at in range(2_000 * SOAK):
        name = chance.choice(list(right))
        data = mutated(right[name], chance)
        put(folder / name, data)
        same = data == right[name]
        assert succeeds(verify, folder) == same
        if at < 300:
            tracemalloc.start()
        try:
            found = Store.open(folder).content
        except FileError:
            assert not same
        else:
            assert same or name == mapped
            unnoticed += not same
            assert found["n"] == 3
            assert found["checked"].tobytes() == expected["checked"].tobytes()
            assert found["mapped"].shape == expected["mapped"].shape
            assert found["mapped"].sum() >= 0  # all of it can be touched
        if at < 300:
            assert tracemalloc.get_traced_memory()[1] < 2 << 20
            tracemalloc.stop()
        put(folder / name, right[name])
    assert unnoticed > 0, "the payload of what is mapped is looked at by verify only"


def test_mutations_of_a_manifest_that_is_signed_again(folder: Path) -> None:
    """As an attacker would: all of JSON is under attack, not the checksum only."""
    chance = random.Random(0)
    text = (folder / MANIFEST).read_bytes().split(b"\n", 1)[1]
    words = [b"null", b"true", b"-1", b"1e9", b"{}", b"[]", b'""', b'"file"', b'"|S9"', b"9" * 30]
    opened = 0
    for _ in range(2000):
        if chance.random() < 0.5:
            data = mutated(text, chance)
        else:  # another value in a random place
            tokens = text.split(b" ")
            tokens[chance.randrange(len(tokens))] = chance.choice(words) + b",\n"
            data = b" ".join(tokens)
        put(folder / MANIFEST, signed(data))
        try:
            Store.open(folder)
        except FileError:
            continue
        opened += 1
    assert opened < 1000


def succeeds(call: Callable[[Path], object], path: Path) -> bool:
    try:
        call(path)
    except FileError:
        return False
    return True


def test_limits_are_those_of_the_format() -> None:
    assert MOST_BYTES == 16 << 20
    assert np.dtype("|S1024").itemsize == 1024
