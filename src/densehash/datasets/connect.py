"""Connections by http, https or ftp that can start in the middle of a file."""

from __future__ import annotations

import ftplib
import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import unquote, urlsplit

from densehash.errors import InputError

__all__ = [
    "ChangedError",
    "CutError",
    "RefusedError",
    "Reply",
    "UnreachableError",
    "check_url",
    "connect",
]

_TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 16
_BUSY = {408, 425, 429, 500, 502, 503, 504}  # statuses that may be gone a moment later


class CutError(Exception):
    """The connection broke, or the server is busy: try again."""


class UnreachableError(CutError):
    """No connection could be made."""


class RefusedError(Exception):
    """The server does not have the file, or refuses to send it."""


class ChangedError(Exception):
    """The file on the server has changed since its first part was received."""


@dataclass(frozen=True)
class Reply:
    """An open connection.

    Attributes
    ----------
    read : returns the next bytes, b"" at the end; raises CutError
    start : position of the first byte in the file
    total : bytes of the whole file; None if the server does not say
    mark : tag or date of the file, which changes when the file does; "" if there is none
    """

    read: Callable[[], bytes]
    start: int
    total: int | None
    mark: str


def check_url(url: str) -> str:
    """Refuse anything but an address of http, https or ftp.

    Examples
    --------
    >>> check_url("file:///tmp/sift.tar.gz")
    Traceback (most recent call last):
        ...
    densehash.errors.InputError: url must begin with http://, https:// or ftp://, \
got 'file:///tmp/sift.tar.gz'
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https", "ftp") or not parts.hostname:
        raise InputError(f"url must begin with http://, https:// or ftp://, got {url!r}")
    if re.search(r"[\x00-\x20\x7f]", unquote(url)):  # a line break could add an FTP command
        raise InputError(f"url must have no spaces or control characters, got {url!r}")
    return url


@contextmanager
def connect(url: str, start: int = 0, mark: str = "") -> Iterator[Reply]:
    """Request a file from its start, or from where an earlier connection was cut.

    Parameters
    ----------
    url : address, checked
    start : how many bytes were received before
    mark : mark of the file they came from; if the server's file has another, it starts at 0

    Examples
    --------
    >>> with connect("ftp://127.0.0.1:9/"):
    ...     pass
    Traceback (most recent call last):
        ...
    densehash.datasets.connect.UnreachableError: Connection refused
    """
    host = urlsplit(url).hostname or ""
    proxied = "ftp" in urllib.request.getproxies() and not urllib.request.proxy_bypass(host)
    by_ftp = url.startswith("ftp:") and not proxied  # a proxy is asked by HTTP
    with (_by_ftp if by_ftp else _by_http)(url, start, mark) as reply:
        yield reply


@contextmanager
def _by_http(url: str, start: int, mark: str) -> Iterator[Reply]:
    headers = {"User-Agent": "densehash", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if mark:
            headers["If-Range"] = mark
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  the scheme was checked
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310
    except urllib.error.HTTPError as error:
        with error:
            length = _length_beyond(error, start)
        yield Reply(bytes, start, length, mark)
        return
    except urllib.error.URLError as error:
        raise UnreachableError(_words(error.reason)) from None
    except (OSError, http.client.HTTPException) as error:
        raise CutError(_words(error)) from None

    with answer:
        headers = answer.headers
        tag, date = headers.get("ETag", ""), headers.get("Last-Modified", "")
        # A weak tag says that files have the same meaning, not the same bytes.
        own = tag if tag and not tag.startswith("W/") else date
        total: int | None = None
        if answer.status == HTTPStatus.PARTIAL_CONTENT:
            place = re.match(r"bytes (\d+)-\d+/(\d+)", headers.get("Content-Range", ""))
            if not start:
                raise RefusedError("a part of a file, though the whole was asked for")
            if not place or int(place[1]) != start or (mark and own and own != mark):
                raise ChangedError
            total = int(place[2])
        else:
            start = 0
            if headers.get("Content-Length", "").isdecimal():
                total = int(headers["Content-Length"])

        def read() -> bytes:
            try:
                return bytes(answer.read1(_CHUNK))
            except (OSError, http.client.HTTPException) as error:
                raise CutError(_words(error)) from None

        yield Reply(read, start, total, own)


def _length_beyond(error: urllib.error.HTTPError, start: int) -> int:
    """``start``, if the error says that the file ends there; otherwise raises what it means."""
    status = f"{error.code} {error.reason}"
    if error.code in _BUSY:
        raise CutError(status) from None
    if not start or error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        raise RefusedError(status) from None
    length = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
    if not length or int(length[1]) != start:
        raise ChangedError from None
    return start


@contextmanager
def _by_ftp(url: str, start: int, mark: str) -> Iterator[Reply]:
    parts = urlsplit(url)
    path = unquote(parts.path).lstrip("/")
    server = ftplib.FTP(timeout=_TIMEOUT)  # noqa: S321  the file is checked by its checksum
    try:
        try:
            server.connect(parts.hostname or "", parts.port or ftplib.FTP_PORT)
            server.login()
            server.voidcmd("TYPE I")
            total, own = _ftp_size(server, path), ""
            with suppress(ftplib.error_perm, ftplib.error_reply):
                own = server.sendcmd(f"MDTM {path}")
            start = start if own == mark else 0
            try:
                data = server.transfercmd(f"RETR {path}", start or None)
            except (ftplib.error_perm, ftplib.error_reply):
                if not start:
                    raise
                start = 0  # the server cannot start in the middle
                data = server.transfercmd(f"RETR {path}")
        except ftplib.error_temp as error:
            raise CutError(_words(error)) from None
        except ftplib.Error as error:
            raise RefusedError(_words(error)) from None
        except (OSError, EOFError) as error:
            raise UnreachableError(_words(error)) from None

        def read() -> bytes:
            try:
                return data.recv(_CHUNK)
            except OSError as error:
                raise CutError(_words(error)) from None

        with data:
            yield Reply(read, start, total, own)
    finally:
        server.close()


def _ftp_size(server: ftplib.FTP, path: str) -> int | None:
    try:
        return server.size(path)
    except ftplib.error_perm as error:
        if str(error).startswith("550"):  # no such file
            raise
        return None  # the server does not say sizes


def _words(error: object) -> str:
    return str(getattr(error, "strerror", None) or error) or type(error).__name__
