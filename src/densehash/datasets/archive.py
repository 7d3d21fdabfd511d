"""Some files of an archive, all of them or none."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from densehash.disk import check_room, sync_folder, writing
from densehash.errors import FileError
from densehash.progress import bar

__all__ = ["unpack"]

_CHUNK = 1 << 20


def unpack(
    archive: str | Path, folder: str | Path, sizes: Mapping[str, int], *, verbose: bool = False
) -> None:
    """Unpack some files of a ``.tar.gz``.

    Nothing else in the archive is written, whatever its name and kind. Files that are there are
    replaced. One process at a time may unpack an archive.

    Parameters
    ----------
    archive : the file
    folder : where to put them, under the names that they have in the archive
    sizes : their names, and how many bytes each must have; they appear in this order
    verbose : whether long work shows a bar

    Examples
    --------
    >>> unpack("no-such-file.tar.gz", ".", {"sift/sift_base.fvecs": 516_000_000})
    Traceback (most recent call last):
        ...
    densehash.errors.FileError: no-such-file.tar.gz cannot be read: No such file or directory
    """
    archive, folder = Path(archive), Path(folder)
    total = sum(sizes.values())
    try:
        file = archive.open("rb")
    except OSError as error:
        raise FileError(f"{archive} cannot be read: {error.strerror}") from None
    # One name, so that what a killed process has left is found and removed.
    aside = folder / f".{archive.name}.unpacking"
    with file, writing(aside, total):
        shutil.rmtree(aside, ignore_errors=True)
        check_room(folder, total)
        aside.mkdir(parents=True)
        try:
            with bar(f"unpacking {archive.name}", total, shown=verbose) as advance:
                _unpack_aside(file, aside, sizes, advance)
            for name in sizes:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (aside / name).replace(folder / name)
                sync_folder((folder / name).parent)
        except (EOFError, tarfile.TarError, zlib.error, gzip.BadGzipFile) as error:
            raise FileError(f"{archive} is cut or damaged: {error}") from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _unpack_aside(
    file: IO[bytes], aside: Path, sizes: Mapping[str, int], advance: Callable[[int], None]
) -> None:
    missing = dict(sizes)
    with gzip.GzipFile(fileobj=file) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            if name not in missing:
                continue
            if not member.isreg() or member.size != missing.pop(name):
                kind = f"{member.size:,} bytes" if member.isreg() else "no plain file"
                raise FileError(
                    f"{file.name} has {name} with {kind}, expected {sizes[name]:,} bytes"
                )
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            with (aside / name).open("xb") as out:
                _extract(tar, member, out, advance)
            if not missing:
                return
    raise FileError(f"{file.name} has no {' and no '.join(missing)}")


def _extract(
    tar: tarfile.TarFile,
    member: tarfile.TarInfo,
    out: IO[bytes],
    advance: Callable[[int], None],
) -> None:
    source = tar.extractfile(member)  # raises at the end of an archive that was cut
    while source is not None and (block := source.read(_CHUNK)):
        out.write(block)
        advance(len(block))
    out.flush()
    os.fsync(out.fileno())
