"""Data sets by name: those inside scikit-learn, the paper's three, and any file.

The facts about published sets are here as data: addresses, sizes, checksums, and the path of each
file after unpacking. ``docs/datasets.md`` says where these facts come from.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from numpy.typing import NDArray

from densehash.datasets import builtin
from densehash.datasets.files import SUFFIXES, open_vectors
from densehash.datasets.reading import Vectors
from densehash.disk import check_room, is_there, writing
from densehash.errors import FileError, InputError
from densehash.file_locks import locked
from densehash.source import Source

__all__ = [
    "NAMES",
    "PUBLISHED",
    "DataSet",
    "Fetched",
    "Published",
    "data_folders",
    "fetch",
    "find",
    "load",
]

_TEXMEX = "http://corpus-texmex.irisa.fr/"


@dataclass(frozen=True)
class DataSet:
    """Vectors to search, and vectors to search for.

    Attributes
    ----------
    name : name of the set, or of its file without the suffix
    base : real array (n, d), often a memory map, or a Source
    queries : real array (q, d), or None if the set has none of its own
    description : one sentence on where it comes from
    """

    name: str
    base: Vectors
    queries: NDArray[Any] | None
    description: str = ""


@dataclass(frozen=True)
class Published:
    """The known facts about a set that somebody publishes.

    Attributes
    ----------
    name, description : as in a DataSet
    page : the web page about it
    base, queries : paths of its files in a data folder; ``*`` stands for an unknown name, and
        ``queries`` is None if the set has no queries
    n_rows, n_features : shape of the base; the number of rows is None if it is unknown
    n_queries : how many queries it has
    urls : addresses of the same archive, to try in turn; empty if none is known
    size, checksum : size and checksum of the archive, as in
        :func:`densehash.datasets.download.fetch`
    """

    name: str
    description: str
    page: str
    base: str
    queries: str | None
    n_rows: int | None
    n_features: int
    n_queries: int = 0
    urls: tuple[str, ...] = ()
    size: int | None = None
    checksum: str | None = None

    @property
    def archive(self) -> str:
        """Name of the archive."""
        return self.urls[0].rpartition("/")[2] if self.urls else ""

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file. All are fvecs: a row is its dimension and its numbers, 4 bytes each.

        The base comes last, so that a set that has its base is complete.
        """
        row = 4 + 4 * self.n_features
        sizes = {self.queries: row * self.n_queries} if self.queries else {}
        return {**sizes, self.base: row * (self.n_rows or 0)}


@dataclass(frozen=True)
class Fetched:
    """Where a published set is.

    Attributes
    ----------
    name : name of the set
    folder : the folder of its files
    base, queries : its files; ``queries`` is None if the set has no queries
    downloaded : False if it was there already
    """

    name: str
    folder: Path
    base: Path
    queries: Path | None
    downloaded: bool = False


PUBLISHED = {
    entry.name: entry
    for entry in (
        Published(
            name="sift1m",
            description="One million SIFT descriptors of photographs, and 10,000 of others that "
            "ask (TEXMEX, Jégou, Douze and Schmid 2011).",
            page=_TEXMEX,
            base="sift/sift_base.fvecs",
            queries="sift/sift_query.fvecs",
            n_rows=1_000_000,
            n_features=128,
            n_queries=10_000,
            urls=(
                "ftp://ftp.irisa.fr/local/texmex/corpus/sift.tar.gz",
                "https://huggingface.co/datasets/fzliu/sift1m/resolve/main/sift.tar.gz",
            ),
            size=168_280_445,
            checksum="sha256:92f1270c5e3a0cb46b89983e72b0511e4df065c31a9fa0276d8c9b1fca5bc81a",
        ),
        Published(
            name="gist1m",
            description="One million GIST descriptors of photographs, and 1,000 of others that "
            "ask (TEXMEX, Jégou, Douze and Schmid 2011).",
            page=_TEXMEX,
            base="gist/gist_base.fvecs",
            queries="gist/gist_query.fvecs",
            n_rows=1_000_000,
            n_features=960,
            n_queries=1_000,
            urls=(
                "ftp://ftp.irisa.fr/local/texmex/corpus/gist.tar.gz",
                "https://huggingface.co/datasets/fzliu/gist1m/resolve/main/gist.tar.gz",
            ),
            size=2_740_172_684,
            checksum="sha256:01469a7f1c3768853525e543d537e2dfa1adece927616405e360952e3f67df73",
        ),
        Published(
            name="flickr1m",
            description="One million GIST descriptors of photographs from Flickr (Jin, Li, Lin "
            "and Cai 2014).",
            page="http://www.cad.zju.edu.cn/home/dengcai/Data/NNSData.html",
            base="flickr1m/*",
            queries=None,
            n_rows=None,
            n_features=512,
        ),
    )
}
"""The paper's three sets, by name."""

_BUILT_IN = {
    "digits": (
        builtin.digits,
        "Handwritten digits of 8 x 8 pixels, from scikit-learn (UCI, Alpaydin and Kaynak 1998).",
    ),
    "patches": (
        builtin.patches,
        "Patches of 12 x 12 pixels of the two photographs in scikit-learn, at three scales.",
    ),
}

NAMES = (*_BUILT_IN, *PUBLISHED)
"""The sets that :func:`load` knows by name."""


def load(
    name_or_path: str | Path, *, queries: str | Path | None = None, key: str | None = None
) -> DataSet:
    """Open a data set by its name, or any file of vectors by its path.

    Parameters
    ----------
    name_or_path : one of NAMES, in upper or lower case, or the path of a file or folder for
        :func:`densehash.datasets.open_vectors`. An HDF5 file in the layout of ann-benchmarks
        also has queries, which are loaded, too.
    queries : path of a file of queries, instead of the set's own
    key : name of the array to take, if the file of the base has several

    Returns
    -------
    a DataSet; its base is read when it is used, unless the set is built in

    Examples
    --------
    >>> load("digits").base.shape
    (1797, 64)
    >>> load("digits.npy")
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: 'digits.npy' is neither an existing file nor the name of a data \
set: digits, patches, sift1m, gist1m, flickr1m
    """
    name = str(name_or_path).lower()
    base: Vectors
    own: Vectors | None
    if isinstance(name_or_path, str) and name in _BUILT_IN:
        make, description = _BUILT_IN[name]
        base, own = make(), None
    elif isinstance(name_or_path, str) and name in PUBLISHED:
        base, own = _open_published(PUBLISHED[name], key)
        description = PUBLISHED[name].description
    else:
        path = Path(name_or_path)
        if not name or not (path.is_file() or path.is_dir()):  # the path of "" would be this folder
            raise InputError(
                f"{str(name_or_path)!r} is neither an existing file nor the name of a data set: "
                f"{', '.join(NAMES)}"
            )
        base, own = open_vectors(path, key=key), _queries_inside(path, key)
        name, description = path.stem, f"The vectors of {path.name}."
    asked = own if queries is None else open_vectors(Path(queries))
    if asked is not None and asked.shape[1] != base.shape[1]:
        raise InputError(f"queries have {asked.shape[1]} features but {name} has {base.shape[1]}")
    if isinstance(asked, Source):
        asked = asked[: len(asked)]
    return DataSet(name, base, asked, description)


def data_folders() -> tuple[Path, ...]:
    """The folders in which to look for published sets, in order; sets are fetched to the first.

    These are the folder in the environment variable DENSEHASH_DATA, if it is set, and ``densehash``
    in the user's cache folder.

    Examples
    --------
    >>> data_folders()[-1].name
    'densehash'
    """
    named = os.environ.get("DENSEHASH_DATA")
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if not Path(caches).is_absolute():  # the standard says to ignore relative paths
        if sys.platform == "win32":
            caches = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            caches = str(Path.home() / "Library" / "Caches")
        else:
            caches = str(Path.home() / ".cache")
    cache = Path(caches) / "densehash"
    return (Path(named).expanduser(), cache) if named else (cache,)


def find(name: str, *, to: str | Path | None = None) -> Fetched | None:
    """Where a published set is; None if it is not in these folders.

    Parameters
    ----------
    name : one of PUBLISHED, in upper or lower case
    to : the only folder to search; default: all of :func:`data_folders`

    Examples
    --------
    >>> find("sift1m", to="no-such-folder") is None
    True
    """
    entry = _published(name)
    for folder in data_folders() if to is None else (Path(to),):
        base = _file(folder, entry.base)
        queries = _file(folder, entry.queries) if entry.queries else None
        if base is not None and (queries is not None or not entry.queries):
            return Fetched(entry.name, base.parent, base, queries)
    return None


def fetch(name: str, *, to: str | Path | None = None, verbose: bool = False) -> Fetched:
    """Download a published set, check it and unpack it, unless it is there already.

    If a download is interrupted, the next call goes on where it stopped. An archive that you put
    into the folder by hand is checked and unpacked.

    Parameters
    ----------
    name : one of PUBLISHED, in upper or lower case
    to : folder to put it into; default: the first of ``data_folders()``
    verbose : whether long work shows a bar

    Examples
    --------
    >>> fetch("digits")
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: digits comes with scikit-learn: there is nothing to fetch
    """
    from densehash.datasets.archive import unpack  # noqa: PLC0415  seldom needed

    entry = _published(name)
    if (there := find(entry.name, to=to)) is not None:
        _open_checked(entry, there)
        return there
    folder = data_folders()[0] if to is None else Path(to)
    if not entry.urls:
        raise FileError(f"no address of the files of {entry.name} is known: {_by_hand(entry)}")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / entry.name, needed=False, verbose=verbose):
            if (there := find(entry.name, to=folder)) is not None:  # another process was faster
                return there
            archive = folder / entry.archive
            put_by_hand = is_there(archive)
            needed = sum(entry.sizes.values()) + (0 if put_by_hand else entry.size or 0)
            part = archive.with_name(f"{archive.name}.part")
            check_room(folder, needed - (part.stat().st_size if part.exists() else 0))
            _download(entry, archive, verbose)
            unpack(archive, folder, entry.sizes, verbose=verbose)
            there = Fetched(
                entry.name,
                (folder / entry.base).parent,
                folder / entry.base,
                folder / entry.queries if entry.queries else None,
                downloaded=True,
            )
            _open_checked(entry, there)
            if not put_by_hand:
                archive.unlink()
    return there


def _published(name: str) -> Published:
    lower = name.lower()
    if lower in _BUILT_IN:
        raise InputError(f"{lower} comes with scikit-learn: there is nothing to fetch")
    if lower not in PUBLISHED:
        raise InputError(f"name must be one of {', '.join(PUBLISHED)}, got {name!r}")
    return PUBLISHED[lower]


def _download(entry: Published, archive: Path, verbose: bool) -> None:
    from densehash.datasets import download  # noqa: PLC0415  loads http.client, ftplib and more

    reasons = []
    for url in entry.urls:
        try:
            download.fetch(url, archive, size=entry.size, checksum=entry.checksum, verbose=verbose)
        except download.UnavailableError as error:
            reasons.append(error.reason)
        else:
            return
    raise FileError(
        f"{entry.name} cannot be downloaded from here: {'; '.join(reasons)}. Download "
        f"{entry.archive} by hand, put it into {archive.parent}, and run this again; "
        f"see {entry.page}"
    )


def _open_published(entry: Published, key: str | None) -> tuple[Vectors, Vectors | None]:
    there = find(entry.name)
    if there is not None:
        return _open_checked(entry, there, key)
    for folder in data_folders():
        if entry.urls and (folder / entry.archive).exists():
            raise FileError(
                f"{folder / entry.archive} is there, but not unpacked: "
                f"run `densehash fetch {entry.name}`"
            )
    folders = " or ".join(map(str, data_folders()))
    expected = " and ".join(name for name in (entry.base, entry.queries) if name)
    fetched = f"run `densehash fetch {entry.name}`, or " if entry.urls else ""
    raise FileError(
        f"{entry.name} was not found: no {expected} in {folders}; {fetched}{_by_hand(entry)}"
    )


def _by_hand(entry: Published) -> str:
    folder = data_folders()[0]
    if entry.urls:
        return f"download {entry.urls[0]} by hand (see {entry.page}) and unpack it in {folder}"
    return (
        f"download it by hand from {entry.page} and put its file of vectors, of any format, into "
        f"{folder / PurePosixPath(entry.base).parent}"
    )


def _open_checked(
    entry: Published, there: Fetched, key: str | None = None
) -> tuple[Vectors, Vectors | None]:
    """Open the files of a set, and refuse them if their shapes are not those of the set."""
    base = open_vectors(there.base, key=key)
    _check_shape(there.base, base, entry.n_rows, entry.n_features)
    if there.queries is None:
        return base, None
    queries = open_vectors(there.queries)
    _check_shape(there.queries, queries, entry.n_queries, entry.n_features)
    return base, queries


def _check_shape(path: Path, found: Vectors, n_rows: int | None, n_features: int) -> None:
    expected = (found.shape[0] if n_rows is None else n_rows, n_features)
    if tuple(found.shape) != expected:
        raise FileError(
            f"{path} has vectors of shape {tuple(found.shape)}, expected {expected}: remove it, "
            "and fetch it again"
        )


def _file(folder: Path, pattern: str) -> Path | None:
    """The file of this name, or the only file that matches a pattern."""
    if "*" not in pattern:
        return folder / pattern if (folder / pattern).is_file() else None
    found = sorted(path for path in folder.glob(pattern) if path.suffix.lower() in SUFFIXES)
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise FileError(
            f"{folder / pattern} must be one file of vectors, found {names}: give the path of one"
        )
    return found[0] if found else None


def _queries_inside(path: Path, key: str | None) -> Vectors | None:
    """The queries in a file of ann-benchmarks, which has the datasets ``train`` and ``test``."""
    if path.suffix.lower() not in (".hdf5", ".h5") or key not in (None, "train"):
        return None
    try:
        open_vectors(path, key="train")
        return open_vectors(path, key="test")
    except InputError:
        return None
