"""Downloads that are complete or do not appear at all.

A file is written as ``NAME.part`` in the same folder, and renamed when it is complete and correct.
If the connection is cut, the received part is kept, and this call or the next requests the rest.
Two processes that want the same file take turns.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from densehash.datasets.connect import (
    ChangedError,
    CutError,
    RefusedError,
    Reply,
    UnreachableError,
    check_url,
    connect,
)
from densehash.disk import check_room, is_there, sync_folder, writing
from densehash.errors import FileError, InputError
from densehash.file_locks import locked
from densehash.progress import bar

__all__ = ["UnavailableError", "fetch"]

_N_TRIES = 5
_PAUSE = 1.0  # seconds before the second try; doubled before each further one
_REFRESH = 0.1  # seconds between two updates of the bar
_CHUNK = 1 << 20
_ALGORITHMS = ("md5", "sha256")


class UnavailableError(FileError):
    """Nothing could be downloaded from an address; another one, or a browser, may work.

    Attributes
    ----------
    reason : the address, and why it failed
    """

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason}: {advice}")
        self.reason = reason


@dataclass(frozen=True)
class _Job:
    url: str
    target: Path
    size: int | None
    checksum: str | None
    verbose: bool

    @property
    def part(self) -> Path:
        return self.target.with_name(f"{self.target.name}.part")

    @property
    def notes(self) -> Path:
        """The file of `_Notes`, beside the part."""
        return self.target.with_name(f"{self.target.name}.part.json")


@dataclass(frozen=True)
class _Notes:
    """Where a part comes from: the address, the mark of the file there, and its length."""

    url: str = ""
    mark: str = ""
    total: int | None = None


def fetch(
    url: str,
    target: str | Path,
    *,
    size: int | None = None,
    checksum: str | None = None,
    verbose: bool = False,
) -> Path:
    """Download a file, unless it exists; continue where an earlier try was cut.

    Parameters
    ----------
    url : address of http, https or ftp
    target : path of the file; its folder is created if necessary. An existing file is checked, and
        never replaced.
    size : bytes that it must have, if known
    checksum : ``"md5:..."`` or ``"sha256:..."`` in hexadecimal, if known
    verbose : whether to show a progress bar for a long download

    Returns
    -------
    ``target``

    Raises
    ------
    UnavailableError : if nothing can be downloaded from the address
    FileError : if the connection is cut again and again (the received part is kept), if the file is
        not the expected one, or if it cannot be written

    Examples
    --------
    >>> fetch("ftp://127.0.0.1:9/sift.tar.gz", "sift.tar.gz")
    Traceback (most recent call last):
        ...
    densehash.datasets.download.UnavailableError: ftp://127.0.0.1:9/sift.tar.gz cannot be \
reached (Connection refused): download it by hand, and save it as sift.tar.gz
    """
    algorithm, _, digest = (checksum or "").partition(":")
    if checksum is not None and (algorithm not in _ALGORITHMS or not digest):
        raise InputError(f"checksum must be 'md5:...' or 'sha256:...', got {checksum!r}")
    job = _Job(check_url(url), Path(target), size, checksum, verbose)
    with writing(job.target):
        if not is_there(job.target):  # an existing file is complete, and needs no lock
            job.target.parent.mkdir(parents=True, exist_ok=True)
            with locked(job.target, needed=False, verbose=verbose):  # or checksums protect
                if not is_there(job.target):
                    _download(job)
                    return job.target
        _check(job, job.target, "remove it to download it again")
    return job.target


def _download(job: _Job) -> None:
    _receive_all(job)
    try:
        _check(job, job.part, "it is not the file that was expected, and was removed")
    except FileError:
        _forget(job)
        raise
    job.part.replace(job.target)
    sync_folder(job.target.parent)
    _forget(job)


def _receive_all(job: _Job) -> None:
    """Complete the part, with as many connections as it takes."""
    failures = 0
    at_first = most = _length(job.part)
    while True:
        try:
            _receive(job)
        except ChangedError:
            _forget(job)  # the next try starts at 0, and cannot end here again
        except RefusedError as error:
            raise _unavailable(job, f"answered {error}") from None
        except CutError as error:
            have = _length(job.part)
            # A bad connection that still makes progress is no reason to give up.
            failures = 1 if have > most else failures + 1
            most = max(most, have)
            offline = isinstance(error, UnreachableError) and most == at_first
            if not offline and failures < _N_TRIES:
                time.sleep(_PAUSE * 2 ** (failures - 1))
                continue
            if not have:
                raise _unavailable(job, f"cannot be reached ({error})") from None
            raise FileError(
                f"{job.url} was cut ({error}): {have:,} bytes are kept in {job.part}; "
                "run this again to go on from there"
            ) from None
        else:
            return


def _receive(job: _Job) -> None:
    """Open one connection, and append what it sends to the part."""
    notes = _read_notes(job)
    start, mark = _length(job.part), notes.mark
    # Without a mark, only a checksum can show that both parts belong to one file.
    if notes.url != job.url or not (mark or job.checksum):
        start, mark = 0, ""
    with connect(job.url, start, mark) as reply:
        total = job.size if reply.total is None else reply.total
        if job.size is not None and total != job.size:
            raise _unavailable(job, f"has {total:,} bytes, not the {job.size:,} expected")
        if reply.start and notes.total != total:
            raise ChangedError
        if total is not None:
            check_room(job.target.parent, total - reply.start)
        with writing(job.part, total), job.part.open("ab" if reply.start else "wb") as file:
            if not reply.start:
                _write_notes(job, _Notes(job.url, reply.mark, total))
            _copy(job, reply, file, total)
            file.flush()
            os.fsync(file.fileno())


def _copy(job: _Job, reply: Reply, file: IO[bytes], total: int | None) -> None:
    have, told, told_at = reply.start, 0, 0.0
    with bar(f"fetching {job.target.name}", total or 0, shown=job.verbose) as advance:
        while block := reply.read():
            have += len(block)
            if total is not None and have > total:
                _forget(job)
                raise FileError(f"{job.url} sends more than the {total:,} bytes it should have")
            file.write(block)
            if time.monotonic() > told_at + _REFRESH:
                advance(have - told)
                told, told_at = have, time.monotonic()
        advance(have - told)
    if total is not None and have < total:
        raise CutError(f"{total - have:,} of {total:,} bytes are missing")


def _check(job: _Job, path: Path, advice: str) -> None:
    """Refuse a file of another size or checksum."""
    length = _length(path)
    if job.size is not None and length != job.size:
        raise FileError(f"{path} has {length:,} bytes, expected {job.size:,}: {advice}")
    if job.checksum is None:
        return
    algorithm, _, expected = job.checksum.partition(":")
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with (
        path.open("rb") as file,
        bar(f"checking {job.target.name}", length, shown=job.verbose) as advance,
    ):
        while block := file.read(_CHUNK):
            digest.update(block)
            advance(len(block))
    if digest.hexdigest() != expected.lower():
        raise FileError(
            f"{path} has the {algorithm} {digest.hexdigest()}, expected {expected}: {advice}"
        )


def _unavailable(job: _Job, trouble: str) -> UnavailableError:
    advice = f"download it by hand, and save it as {job.target}"
    return UnavailableError(f"{job.url} {trouble}", advice)


def _length(path: Path) -> int:
    return path.stat().st_size if is_there(path) else 0


def _read_notes(job: _Job) -> _Notes:
    try:
        notes = _Notes(**json.loads(job.notes.read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError):  # there are no notes, or they cannot be used
        return _Notes()
    return notes if type(notes.mark) is str else _Notes()


def _write_notes(job: _Job, notes: _Notes) -> None:
    job.notes.write_text(json.dumps(asdict(notes)), encoding="utf-8")


def _forget(job: _Job) -> None:
    job.part.unlink(missing_ok=True)
    job.notes.unlink(missing_ok=True)
