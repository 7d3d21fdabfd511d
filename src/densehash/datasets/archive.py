"""Unpacks some files of an archive, all of them or none."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from densehash.disk import check_room, sync_folder, writing
from densehash.errors import FileError
from densehash.progress import bar

__all__ = ["unpack"]

_CHUNK = 1 << 20

# An archive of a data set has few files, so all its headers together are small: those of the files,
# and the long names and maps of holes that may come with each, which are read as a whole.
_MOST_HEADERS = 1 << 20


def unpack(
    archive: str | Path, folder: str | Path, sizes: Mapping[str, int], *, verbose: bool = False
) -> None:
    """Unpack some files of a ``.tar.gz``.

    Nothing else in the archive is written, whatever its name and kind. Existing files are replaced.
    Only one process at a time may unpack an archive.

    Parameters
    ----------
    archive : the file
    folder : where to put the files, with their names in the archive
    sizes : names of the files, and how many bytes each must have; they appear in this order
    verbose : whether to show a progress bar for long work

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
    # Always the same name, so that the remains of a killed process are found and removed.
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
        except (EOFError, ValueError, tarfile.TarError, zlib.error, gzip.BadGzipFile) as error:
            raise FileError(f"{archive} is cut or damaged: {error}") from None
        except RecursionError:
            raise FileError(f"{archive} is damaged: headers follow headers, and no file") from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)


class _Stream(gzip.GzipFile):
    """The unpacked stream of an archive, with a limit for the bytes of headers."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._left: int | None = _MOST_HEADERS

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes; an error if they are too many for headers."""
        block = super().read(size)
        if self._left is not None:
            self._left -= len(block)
            if self._left < 0:
                raise FileError(
                    f"{self.name} has headers of more than {_MOST_HEADERS:,} bytes, expected an "
                    "archive of a few plain files"
                )
        return block

    @contextmanager
    def without_limit(self) -> Iterator[None]:
        """No limit during a ``with`` block, to read the content of a file instead of a header."""
        left, self._left = self._left, None
        yield
        self._left = left


def _unpack_aside(
    file: IO[bytes], aside: Path, sizes: Mapping[str, int], advance: Callable[[int], None]
) -> None:
    missing = dict(sizes)
    with _Stream(file) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        while (member := tar.next()) is not None:
            name = member.name.removeprefix("./")
            plain = member.isreg() and not member.issparse()
            if name in missing:
                if not plain or member.size != missing.pop(name):
                    kind = f"{member.size:,} bytes" if plain else "no plain file"
                    raise FileError(
                        f"{file.name} has {name} with {kind}, expected {sizes[name]:,} bytes"
                    )
                (aside / name).parent.mkdir(parents=True, exist_ok=True)
                with (aside / name).open("xb") as out:
                    for block in _content(tar, member, stream):
                        out.write(block)
                        advance(len(block))
                    out.flush()
                    os.fsync(out.fileno())
                if not missing:
                    return
            elif plain:  # skipped here: tarfile would count it as headers
                for _ in _content(tar, member, stream):
                    pass
    raise FileError(f"{file.name} has no {' and no '.join(missing)}")


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo, stream: _Stream) -> Iterator[bytes]:
    source = tar.extractfile(member)  # raises if the archive ends too early
    with stream.without_limit():
        while source is not None and (block := source.read(_CHUNK)):
            yield block
