"""The manifest: one JSON file that says what is in a folder, with its own checksum.

Its first line holds the SHA-256 of all bytes after that line. The form of this line is fixed to the
byte, so every flipped bit is noticed. Nothing in a manifest is trusted before it is checked.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from densehash.errors import FileError, InputError

__all__ = [
    "DEEPEST",
    "FORMS",
    "HASHER",
    "HEADER_BYTES",
    "INDEX",
    "MANIFEST",
    "MOST_BYTES",
    "MOST_CHECKED",
    "SHARDS",
    "VERSIONS",
    "Entry",
    "Form",
    "Manifest",
    "decode",
    "encode",
    "entries_of",
    "item_size",
    "other_form",
]

MANIFEST = "manifest.json"
INDEX = "densehash index"
HASHER = "densehash hasher"
SHARDS = "densehash shards"

VERSIONS = {INDEX: (1, 2, 3), HASHER: (1,), SHARDS: (1, 2, 3)}
"""The versions of the format that this densehash reads, by form. An index has version 1 with codes,
2 with other sketches, and 3 with a payload."""

MOST_BYTES = 1 << 24
"""The most bytes of a manifest; thousands of segments take less."""

MOST_CHECKED = 1 << 24
"""The most bytes of a file that is read and checked whenever the folder is opened."""

HEADER_BYTES = 128
"""The bytes of the header of every array file."""

DEEPEST = 16
"""How many levels a content may have."""

_FIRST_LINE = re.compile(rb'\{"sha256": "([0-9a-f]{64})",\n')
_FILE = re.compile(r"[0-9a-f]{16}-[a-z0-9_.-]{1,128}\.npy")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ITEM_SIZES = {"|u1": 1, "|i1": 1, "|b1": 1, "<f2": 2, "<u4": 4, "<f4": 4, "<i8": 8, "<f8": 8}
_TEXT = re.compile(r"\|S([1-9][0-9]{0,3})")
_LONGEST_TEXT = 1024

_MOST_DIMENSIONS = 4
_MOST_LENGTH = 1 << 40
_MOST_FILE = 1 << 60
_MOST_GENERATION = 1 << 53

_ENTRY_KEYS = {"file", "dtype", "shape", "bytes", "sha256", "checked"}


class Form(NamedTuple):
    """What a folder can hold.

    Attributes
    ----------
    noun : its name in errors
    article : the article of the noun
    opened_by : the call that opens it
    """

    noun: str
    article: str
    opened_by: str

    def __str__(self) -> str:
        return f"{self.article} {self.noun}"


FORMS = {
    INDEX: Form("index", "an", "densehash.Index.open"),
    HASHER: Form("hasher", "a", "densehash.load_hasher"),
    SHARDS: Form("sharded index", "a", "densehash.distributed.ShardedIndex.open"),
}
"""All forms, by their names in manifests."""


class Entry(NamedTuple):
    """An array file.

    Attributes
    ----------
    file : its name in the folder
    dtype : as numpy writes it: one of ``|u1 |i1 |b1 <f2 <u4 <f4 <i8 <f8``, or ``|S1`` to ``|S1024``
    shape : 1 to 4 lengths
    n_bytes : size of the whole file
    sha256 : checksum of the whole file, in hexadecimal
    checked : whether it is read and checked whenever the folder is opened
    """

    file: str
    dtype: str
    shape: tuple[int, ...]
    n_bytes: int
    sha256: str
    checked: bool


class Manifest(NamedTuple):
    """What a folder holds.

    Attributes
    ----------
    generation : rises by one with each change
    content : plain values in dicts and lists; arrays are Entry
    form : one of FORMS
    version : version of the format, one of VERSIONS
    """

    generation: int
    content: dict[str, Any]
    form: str = INDEX
    version: int = 1


def other_form(folder: Path, found: str, expected: Iterable[str]) -> str:
    """The error text for a folder that holds something else.

    Parameters
    ----------
    folder : the folder
    found : its form
    expected : the forms that were expected

    Examples
    --------
    >>> other_form(Path("m.dh"), HASHER, [INDEX])
    'm.dh holds a hasher, not an index'
    """
    return f"{folder} holds {FORMS[found]}, not {' or '.join(str(FORMS[one]) for one in expected)}"


def item_size(dtype: str) -> int | None:
    """How many bytes a number of a type has; None if files cannot hold the type.

    Examples
    --------
    >>> item_size("<f4"), item_size("|S12"), item_size("|O")
    (4, 12, None)
    """
    text = _TEXT.fullmatch(dtype)
    if text is None:
        return _ITEM_SIZES.get(dtype)
    return int(text[1]) if int(text[1]) <= _LONGEST_TEXT else None


def encode(manifest: Manifest) -> bytes:
    """The bytes of a manifest.

    Raises
    ------
    InputError : if something in the manifest could not be read again

    Examples
    --------
    >>> print(encode(Manifest(1, {"kind": "flat"})).decode(), end="")
    {"sha256": "46c50be8117225795882aa1f633beff2643983da715cfbfb5395a2a3fb18a67e",
     "format": "densehash index",
     "version": 1,
     "generation": 1,
     "content": {
      "kind": "flat"
     }
    }
    """
    tree = {
        "format": manifest.form,
        "version": manifest.version,
        "generation": manifest.generation,
        "content": _plain(manifest.content, ("content",)),
    }
    rest = json.dumps(tree, indent=1, allow_nan=False).encode("ascii")[2:] + b"\n"
    digest = hashlib.sha256(rest).hexdigest().encode("ascii")
    data = b'{"sha256": "' + digest + b'",\n' + rest
    if len(data) > MOST_BYTES:
        raise InputError(
            f"the manifest would have {len(data):,} bytes, at most {MOST_BYTES:,} are allowed"
        )
    try:
        decode(data, Path(MANIFEST))
    except FileError as error:
        raise InputError(f"this cannot be stored: {error}") from error
    return data


def decode(data: bytes, path: Path) -> Manifest:
    """A manifest from bytes that are not trusted.

    Parameters
    ----------
    data : the whole file
    path : the path of the file, for errors

    Raises
    ------
    FileError : if the manifest is damaged, of a newer version, or names something it must not

    Examples
    --------
    >>> decode(encode(Manifest(3, {"kind": "flat"})), Path("manifest.json"))
    Manifest(generation=3, content={'kind': 'flat'}, form='densehash index', version=1)
    """
    first = _FIRST_LINE.match(data)
    if first is None or len(data) > MOST_BYTES:
        raise FileError(f"{path} is damaged: it does not begin with its checksum")
    if hashlib.sha256(data[first.end() :]).hexdigest().encode("ascii") != first[1]:
        raise FileError(f"{path} is damaged: its checksum is not the one that it names")
    try:
        tree = json.loads(
            data.decode("ascii"), object_pairs_hook=_object, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} cannot be read: {error}") from None
    # These two keys will be the same in every future version.
    form = tree.get("format") if isinstance(tree, dict) else None
    if not isinstance(form, str) or form not in FORMS:
        raise FileError(f"{path} is not the manifest of a {' or a '.join(FORMS)}")
    version = tree.get("version")
    known = VERSIONS[form]
    if type(version) is not int or version not in known:
        newer = type(version) is int and version > known[-1]
        raise FileError(
            f"{path} has version {version!r} of the format, and this densehash reads version "
            + ", ".join(map(str, known)).replace(f", {known[-1]}", f" and {known[-1]}")
            + (": install a newer densehash" if newer else "")
        )
    if set(tree) != {"sha256", "format", "version", "generation", "content"}:
        raise FileError(f"{path} has other parts than version {version} has: {sorted(tree)}")
    generation, content = tree["generation"], tree["content"]
    if type(generation) is not int or not 1 <= generation <= _MOST_GENERATION:
        raise FileError(f"{path}: the generation must be a positive integer, got {generation!r}")
    if not isinstance(content, dict) or "file" in content:
        raise FileError(f"{path}: the content must be an object, and no array")
    try:
        manifest = Manifest(generation, _read(content, ("content",)), form, version)
    except ValueError as error:
        raise FileError(f"{path}: {error}") from None
    seen: set[str] = set()
    for entry in entries_of(manifest.content):
        if entry.file in seen:
            raise FileError(f"{path} names {entry.file} more than once")
        seen.add(entry.file)
    return manifest


def entries_of(tree: Any) -> Iterator[Entry]:
    """All arrays of a content, in order.

    Examples
    --------
    >>> entry = Entry("0123456789abcdef-ids.npy", "<i8", (2,), 144, "0" * 64, True)
    >>> [found.shape for found in entries_of({"segments": [{"ids": entry}]})]
    [(2,)]
    """
    if isinstance(tree, Entry):
        yield tree
    elif isinstance(tree, (dict, list)):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from entries_of(value)


def _plain(value: object, place: tuple[str, ...]) -> Any:
    """A content as JSON writes it; refuses values that JSON would convert to other types."""
    if isinstance(value, Entry):
        entry = value._asdict()
        entry["bytes"] = entry.pop("n_bytes")
        return entry
    if len(place) <= DEEPEST:
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str) or key == "file":
                    raise InputError(f"{_name(place)} has a key {key!r}, which cannot be stored")
            return {key: _plain(item, (*place, key)) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [_plain(item, (*place, str(at))) for at, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{_name(place)} must be finite to be stored, got {value!r}")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise InputError(f"{_name(place)} cannot be stored: it is a {type(value).__name__}")


def _read(value: Any, place: tuple[str, ...]) -> Any:
    """A content from JSON, with every value checked."""
    if isinstance(value, (dict, list)):
        if isinstance(value, dict) and "file" in value:
            return _read_entry(value, place)
        if len(place) > DEEPEST:
            raise ValueError(f"{_name(place)} lies deeper than {DEEPEST} levels")
        if isinstance(value, dict):
            return {key: _read(item, (*place, key)) for key, item in value.items()}
        return [_read(item, (*place, str(at))) for at, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{_name(place)} is not finite")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{_name(place)} does not fit 64 bits")
    return value


def _read_entry(found: dict[str, Any], place: tuple[str, ...]) -> Entry:
    where = _name(place)
    if set(found) != _ENTRY_KEYS:
        raise ValueError(f"{where} must have {', '.join(sorted(_ENTRY_KEYS))}")
    file, dtype, shape = found["file"], found["dtype"], found["shape"]
    if not isinstance(file, str) or not _FILE.fullmatch(file):
        raise ValueError(f"{where} must name a file of this folder, TOKEN-NAME.npy, got {file!r}")
    size = item_size(dtype) if isinstance(dtype, str) else None
    if size is None:
        raise ValueError(f"{where} must have a type that is listed in the format, got {dtype!r}")
    if (
        not isinstance(shape, list)
        or not 1 <= len(shape) <= _MOST_DIMENSIONS
        or not all(type(length) is int and 0 <= length <= _MOST_LENGTH for length in shape)
        # numpy refuses shapes that are too large even where a length is zero
        or math.prod(length for length in shape if length) * size > _MOST_FILE
    ):
        raise ValueError(f"{where} must have 1 to {_MOST_DIMENSIONS} lengths, got {shape!r}")
    n_bytes, sha256, checked = found["bytes"], found["sha256"], found["checked"]
    expected = HEADER_BYTES + math.prod(shape) * size
    if type(n_bytes) is not int or n_bytes != expected:
        raise ValueError(f"{where} must have {expected} bytes, got {n_bytes!r}")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ValueError(f"{where} must have a sha256 of 64 hexadecimal digits, got {sha256!r}")
    if type(checked) is not bool or (checked and n_bytes > MOST_CHECKED):
        raise ValueError(f"{where} is checked, and larger than {MOST_CHECKED:,} bytes")
    return Entry(file, dtype, tuple(shape), n_bytes, sha256, checked)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _name(place: tuple[str, ...]) -> str:
    return ".".join(place)
