from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import random
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from file_servers import DATES, FileServer, ftp_server, http_server

from densehash import file_locks
from densehash.datasets import connect, download
from densehash.datasets.archive import unpack
from densehash.datasets.download import UnavailableError, fetch
from densehash.errors import FileError, InputError

BODY = random.Random(0).randbytes(300_000)
SHA256 = f"sha256:{hashlib.sha256(BODY).hexdigest()}"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_PAUSE", 0.0)
    monkeypatch.setattr(file_locks, "_POLL", 0.01)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def web() -> Iterator[FileServer]:
    with http_server(BODY) as server:
        yield server


@pytest.fixture
def ftp() -> Iterator[FileServer]:
    with ftp_server(BODY) as server:
        yield server


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "data.bin"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def ranges(server: FileServer) -> list[str | None]:
    return [asked.get("range") for asked in server.asked]


def test_a_file_arrives_and_leaves_nothing_beside_it(web: FileServer, target: Path) -> None:
    checksums = [SHA256, f"md5:{hashlib.md5(BODY).hexdigest().upper()}"]
    for checksum in checksums:
        assert fetch(web.url, str(target), size=len(BODY), checksum=checksum) == target
        assert target.read_bytes() == BODY
        assert names(target.parent) == ["data.bin"]
        target.unlink()


def test_what_is_there_is_not_fetched_again(web: FileServer, target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(BODY)
    assert fetch(web.url, target, checksum=SHA256) == target
    assert web.asked == []


@pytest.mark.parametrize("expected", [{"size": 5}, {"checksum": SHA256}])
def test_a_wrong_file_that_is_there_is_never_replaced(
    web: FileServer, target: Path, expected: dict[str, object]
) -> None:
    target.parent.mkdir()
    target.write_bytes(b"mine")
    with pytest.raises(FileError, match="remove it to download it again"):
        fetch(web.url, target, **expected)  # type: ignore[arg-type]
    assert target.read_bytes() == b"mine"


def test_a_cut_download_goes_on_where_it_was_cut(web: FileServer, target: Path) -> None:
    web.actions = [100_000, 50_000]
    fetch(web.url, target)
    assert target.read_bytes() == BODY
    assert ranges(web) == [None, "bytes=100000-", "bytes=150000-"]
    assert web.asked[1]["if-range"] == '"one"'


def test_a_download_that_gets_on_may_be_cut_often(web: FileServer, target: Path) -> None:
    cuts = random.Random(1)
    web.actions = [cuts.randrange(1, 20_000) for _ in range(20)]
    fetch(web.url, target, checksum=SHA256)
    assert target.read_bytes() == BODY
    assert len(web.asked) == 21


def test_what_has_come_is_kept_for_the_next_call(web: FileServer, target: Path) -> None:
    web.actions = [1000, *[0] * 5]
    with pytest.raises(FileError, match="1,000 bytes are kept in .*data.bin.part; run this again"):
        fetch(web.url, target)
    assert len(web.asked) == 1 + 5 - 1  # the first cut is the first of five in a row
    assert not target.exists()
    web.asked.clear()
    web.actions = []
    fetch(web.url, target)
    assert ranges(web) == ["bytes=1000-"]
    assert target.read_bytes() == BODY


def test_a_server_without_ranges_begins_again(web: FileServer, target: Path) -> None:
    web.ranges = False
    web.actions = [100_000]
    fetch(web.url, target)
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("if_range", [True, False], ids=["honest", "ignores If-Range"])
@pytest.mark.parametrize("new", [BODY[::-1], BODY + b"more", BODY[:1000]])
def test_a_file_that_changed_begins_again(
    web: FileServer, target: Path, new: bytes, if_range: bool
) -> None:
    web.actions = [100_000, 0, 0, 0, 0]
    with pytest.raises(FileError):
        fetch(web.url, target)
    web.body, web.tag, web.date, web.if_range = new, '"two"', DATES["new"], if_range
    fetch(web.url, target)
    assert target.read_bytes() == new


def test_a_file_of_the_same_tag_but_another_length_begins_again(
    web: FileServer, target: Path
) -> None:
    web.actions = [100_000, 0, 0, 0, 0]
    with pytest.raises(FileError):
        fetch(web.url, target)
    web.body = BODY[::-1] + b"more"
    fetch(web.url, target)
    assert target.read_bytes() == web.body


@pytest.mark.parametrize(("checksum", "resumed"), [(None, None), (SHA256, "bytes=1000-")])
def test_without_a_mark_only_a_checksum_allows_to_go_on(
    web: FileServer, target: Path, checksum: str | None, resumed: str | None
) -> None:
    web.tag = web.date = None
    web.actions = [1000]
    fetch(web.url, target, checksum=checksum)
    assert ranges(web) == [None, resumed]
    assert target.read_bytes() == BODY


def test_a_weak_tag_is_no_mark(web: FileServer, target: Path) -> None:
    web.tag = 'W/"one"'
    web.actions = [1000]
    fetch(web.url, target)
    assert web.asked[1]["if-range"] == DATES["old"]
    assert target.read_bytes() == BODY


def test_a_part_from_another_address_is_not_used(web: FileServer, target: Path) -> None:
    web.actions = [1000, 0, 0, 0, 0]
    with pytest.raises(FileError):
        fetch(web.url, target)
    web.asked.clear()
    fetch(f"{web.url}?other", target, checksum=SHA256)
    assert ranges(web) == [None]


def test_a_part_that_is_complete_is_taken(web: FileServer, target: Path) -> None:
    web.actions = [len(BODY) - 1, 0, 0, 0, 0]
    with pytest.raises(FileError):
        fetch(web.url, target)
    with target.with_name("data.bin.part").open("ab") as part:
        part.write(BODY[-1:])  # as if the process had been killed before the last step
    fetch(web.url, target)
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("notes", [b"", b"[]", b"{", b'{"mark": 5}', b'{"else": ""}', b"\xff"])
def test_damaged_notes_begin_again(web: FileServer, target: Path, notes: bytes) -> None:
    target.parent.mkdir()
    target.with_name("data.bin.part").write_bytes(b"of who knows what")
    target.with_name("data.bin.part.json").write_bytes(notes)
    fetch(web.url, target)
    assert target.read_bytes() == BODY


def test_a_wrong_checksum_is_told_with_both_sums(web: FileServer, target: Path) -> None:
    wrong = "0" * 64
    with pytest.raises(FileError, match=f"sha256 {SHA256[7:]}, expected {wrong}"):
        fetch(web.url, target, checksum=f"sha256:{wrong}")
    assert names(target.parent) == []


@pytest.mark.parametrize("status", ["404", "403", "410", "416"])
def test_a_refusal_is_final(web: FileServer, target: Path, status: str) -> None:
    web.actions = [status]
    with pytest.raises(
        UnavailableError, match=f"{web.url} answered {status} .*save it as {target}"
    ):
        fetch(web.url, target)
    assert len(web.asked) == 1
    assert names(target.parent) == []


def test_a_busy_server_is_asked_again(web: FileServer, target: Path) -> None:
    web.actions = ["500", "503", "429"]
    fetch(web.url, target)
    assert target.read_bytes() == BODY
    web.actions = ["503"] * 5
    target.unlink()
    with pytest.raises(UnavailableError, match="503 Service Unavailable"):
        fetch(web.url, target)
    assert web.actions == []


def test_the_pauses_grow(web: FileServer, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(download, "_PAUSE", 1.0)
    monkeypatch.setattr(time, "sleep", pauses.append)
    web.actions = ["500"] * 4
    fetch(web.url, target)
    assert pauses == [1, 2, 4, 8]


def test_a_redirection_is_followed_and_resumed(web: FileServer, target: Path) -> None:
    web.actions = ["302", 1000, "302"]
    fetch(web.url, target)
    assert target.read_bytes() == BODY
    assert ranges(web) == [None, None, "bytes=1000-", "bytes=1000-"]


def test_a_wrong_size_is_refused_before_anything_is_written(web: FileServer, target: Path) -> None:
    with pytest.raises(UnavailableError, match="has 300,000 bytes, not the 300,001 expected"):
        fetch(web.url, target, size=300_001)
    assert names(target.parent) == []


def test_a_file_without_a_length(web: FileServer, target: Path) -> None:
    web.length = False
    fetch(web.url, target, size=len(BODY), checksum=SHA256)
    assert target.read_bytes() == BODY
    target.unlink()
    with pytest.raises(FileError, match="sends more than the 1,000 bytes"):
        fetch(web.url, target, size=1000)
    assert names(target.parent) == []
    with pytest.raises(FileError, match="has 300,000 bytes, not the 300,001 expected"):
        fetch(web.url, target, size=len(BODY) + 1)
    assert not target.exists()


def test_a_silent_server_is_asked_again(
    web: FileServer, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "_TIMEOUT", 0.2)
    web.actions = ["hang"]
    fetch(web.url, target)
    assert target.read_bytes() == BODY


def test_too_little_room_is_told_beforehand(
    web: FileServer, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=299_999))
    with pytest.raises(FileError, match="299,999 bytes free, and 300,000 more are needed"):
        fetch(web.url, target)
    assert names(target.parent) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_disk_that_fills_up(web: FileServer, target: Path) -> None:
    target.parent.mkdir()
    target.with_name("data.bin.part").symlink_to("/dev/full")
    with pytest.raises(FileError, match="bytes free, and 300,000 more are needed"):
        fetch(web.url, target)
    assert not target.exists()


def test_a_folder_that_cannot_be_written(web: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileError, match="cannot be written: "):
        fetch(web.url, tmp_path / "file" / "data.bin")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.mark.parametrize("scheme", ["http", "https", "ftp"])
def test_a_refused_connection_says_what_to_do_by_hand(
    target: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("nobody should wait"))
    url = f"{scheme}://127.0.0.1:{free_port()}/data.bin"
    with pytest.raises(UnavailableError) as caught:
        fetch(url, target)
    assert str(caught.value) == (
        f"{url} cannot be reached (Connection refused): "
        f"download it by hand, and save it as {target}"
    )


@pytest.mark.parametrize("scheme", ["http", "ftp"])
def test_an_unknown_host(target: Path, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", offline)
    with pytest.raises(UnavailableError, match="Name or service not known.*by hand"):
        fetch(f"{scheme}://data.invalid/data.bin", target)


def test_a_line_that_goes_down_in_between_is_waited_for(
    web: FileServer, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.actions = [1000]
    real, down = socket.getaddrinfo, [False, True, True]

    def sometimes(*arguments: object, **keywords: object) -> object:
        if down and down.pop(0):
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return real(*arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", sometimes)
    fetch(web.url, target)
    assert target.read_bytes() == BODY


@pytest.mark.parametrize(
    ("url", "checksum", "message"),
    [
        ("file:///etc/passwd", None, "url must begin with http"),
        ("data.bin", None, "url must begin with http"),
        ("http:///data.bin", None, "url must begin with http"),
        ("ftp://host/a%0d%0aDELE%20b", None, "control characters"),
        ("http://host/", "sha1:00", "checksum must be 'md5:...' or 'sha256:...', got 'sha1:00'"),
        ("http://host/", "00", "checksum must be"),
        ("http://host/", "md5:", "checksum must be"),
    ],
)
def test_arguments_that_cannot_be(
    target: Path, url: str, checksum: str | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fetch(url, target, checksum=checksum)


def test_several_at_once_download_one_time(web: FileServer, target: Path) -> None:
    web.actions = [100_000, 1000]
    done: list[Path] = []
    threads = [
        threading.Thread(target=lambda: done.append(fetch(web.url, target, checksum=SHA256)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [target] * 6
    assert len(web.asked) == 3
    assert target.read_bytes() == BODY
    assert names(target.parent) == ["data.bin"]


def test_a_dead_process_holds_no_lock(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib\n"
        "from densehash.file_locks import locked\n"
        "with locked(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "set")], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"held"
        held = file_locks._take(tmp_path / "set.lock")
        process.kill()
    assert held is None
    assert (tmp_path / "set.lock").exists()
    with file_locks.locked(tmp_path / "set"):
        pass
    assert names(tmp_path) == []


def test_locks_go_from_hand_to_hand(tmp_path: Path) -> None:
    inside: list[int] = []

    def work() -> None:
        for _ in range(20):
            with file_locks.locked(tmp_path / "set"):
                inside.append(1)
                assert sum(inside) == 1
                inside.append(-1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(inside) == 160


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock")
def test_a_lock_that_was_removed_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "set.lock"
    monkeypatch.setattr("fcntl.flock", lambda *_: lock.unlink())
    assert file_locks._take(lock) is None

    def replace(*_: object) -> None:
        lock.rename(tmp_path / "old")
        lock.touch()

    monkeypatch.setattr("fcntl.flock", replace)
    assert file_locks._take(lock) is None


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock")
def test_a_file_system_without_locks(
    web: FileServer, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr("fcntl.flock", refuse)
    fetch(web.url, target)
    assert target.read_bytes() == BODY


def test_ftp(ftp: FileServer, target: Path) -> None:
    fetch(ftp.url, target, size=len(BODY), checksum=SHA256)
    assert target.read_bytes() == BODY


def restarts(server: FileServer) -> list[str]:
    return [asked["REST"] for asked in server.asked if "REST" in asked]


def test_ftp_goes_on_where_it_was_cut(ftp: FileServer, target: Path) -> None:
    ftp.actions = [100_000, "425", 50_000]
    fetch(ftp.url, target)
    assert target.read_bytes() == BODY
    assert restarts(ftp) == ["100000", "100000", "150000"]


def test_ftp_begins_again_where_it_must(ftp: FileServer, target: Path) -> None:
    ftp.actions = [1000]
    ftp.ranges = False
    fetch(ftp.url, target)
    assert target.read_bytes() == BODY
    target.unlink()
    ftp.ranges = True
    ftp.actions = [1000, 0, 0, 0, 0]
    with pytest.raises(FileError, match="was cut"):
        fetch(ftp.url, target)
    ftp.body, ftp.date = BODY[::-1], DATES["new"]
    fetch(ftp.url, target)
    assert target.read_bytes() == ftp.body


def test_an_ftp_server_that_tells_nothing(ftp: FileServer, target: Path) -> None:
    ftp.length, ftp.date = False, None
    ftp.actions = [1000]
    fetch(ftp.url, target, size=len(BODY), checksum=SHA256)
    assert target.read_bytes() == BODY
    assert restarts(ftp) == ["1000"]


def test_ftp_without_the_file(ftp: FileServer, target: Path) -> None:
    with pytest.raises(UnavailableError, match="answered 550 no such thing"):
        fetch(f"{ftp.url}.gz", target)


MEMBERS = {"set/queries": b"q" * 5000, "set/base": BODY}
SIZES = {name: len(content) for name, content in MEMBERS.items()}


def pack(path: Path, *extra: tarfile.TarInfo, members: dict[str, bytes] = MEMBERS) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info in extra:
            tar.addfile(info, io.BytesIO(b"evil"[: info.size]) if info.isreg() else None)
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("prefix", ["", "./"])
def test_unpacking_takes_what_is_asked_for(tmp_path: Path, prefix: str) -> None:
    members = {f"{prefix}{name}": content for name, content in MEMBERS.items()}
    archive = pack(
        tmp_path / "a.tar.gz",
        member("set", tarfile.DIRTYPE),
        member("set/other", size=4),
        members=members,
    )
    unpack(archive, tmp_path / "out", SIZES)
    assert everything(tmp_path / "out") == MEMBERS
    assert names(tmp_path / "out") == ["set"]


def test_unpacking_replaces_a_half_of_before(tmp_path: Path) -> None:
    archive = pack(tmp_path / "a.tar.gz")
    (tmp_path / ".a.tar.gz.unpacking" / "set").mkdir(parents=True)
    (tmp_path / ".a.tar.gz.unpacking" / "set" / "base").write_bytes(b"of a killed process")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "base").write_bytes(b"half")
    unpack(archive, tmp_path, SIZES)
    archive.unlink()
    assert everything(tmp_path) == MEMBERS
    assert names(tmp_path) == ["set"]


@pytest.mark.parametrize(
    "evil",
    [
        member("../evil", size=4),
        member("set/../../evil", size=4),
        member("/tmp/densehash-evil", size=4),
        member("link", tarfile.SYMTYPE, ".."),
        member("set", tarfile.SYMTYPE, "../.."),
        member("hard", tarfile.LNKTYPE, "../a.tar.gz"),
        member("device", tarfile.CHRTYPE),
        member("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda info: info.name,
)
def test_what_was_not_asked_for_is_not_written(tmp_path: Path, evil: tarfile.TarInfo) -> None:
    out = tmp_path / "deep" / "out"
    archive = pack(tmp_path / "a.tar.gz", evil)
    before = archive.read_bytes()
    unpack(archive, out, SIZES)
    assert everything(tmp_path) == {
        "a.tar.gz": before,
        **{f"deep/out/{name}": content for name, content in MEMBERS.items()},
    }
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))
    assert not Path("/tmp/densehash-evil").exists()


@pytest.mark.parametrize(
    ("evil", "message"),
    [
        (member("set/base", tarfile.SYMTYPE, "/etc/passwd"), "no plain file"),
        (member("set/base", tarfile.SYMTYPE, "/etc/passwd", size=300_000), "no plain file"),
        (member("set/base", tarfile.LNKTYPE, "set/queries"), "no plain file"),
        (member("set/base", tarfile.CHRTYPE), "no plain file"),
        (member("set/base", tarfile.DIRTYPE), "no plain file"),
        (member("set/base", size=4), "with 4 bytes, expected 300,000 bytes"),
        (member("set/base"), "with 0 bytes, expected 300,000 bytes"),
    ],
)
def test_a_member_that_is_not_what_it_should_be(
    tmp_path: Path, evil: tarfile.TarInfo, message: str
) -> None:
    archive = pack(tmp_path / "a.tar.gz", evil)
    with pytest.raises(FileError, match=message):
        unpack(archive, tmp_path / "out", SIZES)
    assert everything(tmp_path / "out") == {}


def test_a_member_that_claims_too_much_is_refused_unread(tmp_path: Path) -> None:
    info = tarfile.TarInfo("set/base")
    info.size = 1 << 40
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.fileobj.write(info.tobuf())
    with pytest.raises(FileError, match="1,099,511,627,776 bytes, expected 300,000"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out", SIZES)


def header(kind: bytes, size: int = 0, name: str = "x") -> bytes:
    return member(name, kind, size=size).tobuf(tarfile.GNU_FORMAT)


def pax(*records: str) -> bytes:
    """A header with records, each of which begins with its own length."""
    text = "".join(f"{len(one) + 5:03} {one}\n" for one in records).encode().ljust(512, b"\0")
    return header(tarfile.XHDTYPE, len(text)) + text


BOMB = 1 << 25  # bytes that an archive of some tens of kilobytes unpacks to
HOLES = b"\1" * 504 + b"\1" + b"\0" * 7  # a map of holes that goes on in the next block
HOSTILE = {
    "pax": (header(tarfile.XHDTYPE, BOMB), b"\0" * 512),
    "pax for all": (header(tarfile.XGLTYPE, BOMB), b"\0" * 512),
    "pax of Solaris": (header(tarfile.SOLARIS_XHDTYPE, BOMB), b"\0" * 512),
    "long name": (header(tarfile.GNUTYPE_LONGNAME, BOMB), b"x" * 512),
    "long link": (header(tarfile.GNUTYPE_LONGLINK, BOMB), b"x" * 512),
    "holes": (header(tarfile.GNUTYPE_SPARSE)[:482] + b"\1" + bytes(29), HOLES),
    "holes by pax": (
        pax("GNU.sparse.major=1", "GNU.sparse.minor=0")
        + header(tarfile.REGTYPE, BOMB)
        + b"99999999\n".ljust(512, b"1"),
        (b"1" * 31 + b"\n") * 16,
    ),
    "a size that is none": (
        pax("GNU.sparse.realsize=99999999999") + header(tarfile.REGTYPE),
        header(tarfile.DIRTYPE),
    ),
    "many pax": (b"", pax("comment=" + 400 * "x") + header(tarfile.REGTYPE)),
    "many folders": (b"", header(tarfile.DIRTYPE)),
    "many files": (b"", header(tarfile.REGTYPE)),
}


def with_checksum(block: bytes) -> bytes:
    total = 256 + sum(block[:148]) + sum(block[156:512])
    return block[:148] + b"%06o\0 " % total + block[156:]


@pytest.mark.parametrize("kind", HOSTILE)
def test_headers_without_end_take_little_memory(tmp_path: Path, kind: str) -> None:
    start, again = HOSTILE[kind]
    if kind == "holes":
        start = with_checksum(start)
    with gzip.open(tmp_path / "a.tar.gz", "wb", compresslevel=1) as file:
        file.write(start)
        for _ in range(BOMB >> 20):
            file.write(again * ((1 << 20) // len(again)))
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match="a.tar.gz (has headers of more than|is cut or dam)"):
            unpack(tmp_path / "a.tar.gz", tmp_path / "out", SIZES)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
    assert names(tmp_path / "out") == []


def test_a_map_of_holes_that_is_none(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.tar.gz", "wb") as file:
        file.write(HOSTILE["holes by pax"][0].replace(b"99999999", b"nonsense"))
    with pytest.raises(FileError, match="is cut or damaged"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out", SIZES)


def test_headers_that_follow_headers(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.tar.gz", "wb") as file:
        file.write(header(tarfile.XHDTYPE) * 2000)
    with pytest.raises(FileError, match="headers follow headers, and no file"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out", SIZES)


def test_long_names_and_many_bytes_of_others_are_passed_over(tmp_path: Path) -> None:
    others = [member(f"{'deep/' * 100}{at}", size=4) for at in range(20)]
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=form) as tar:
            large = member("large", size=3 << 20)
            tar.addfile(large, io.BytesIO(bytes(large.size)))
            for info in others:
                tar.addfile(info, io.BytesIO(b"evil"))
            for name, content in MEMBERS.items():
                tar.addfile(member(name, size=len(content)), io.BytesIO(content))
        unpack(tmp_path / "a.tar.gz", tmp_path / "out", SIZES)
        assert everything(tmp_path / "out") == MEMBERS


def test_a_cut_archive_leaves_nothing(tmp_path: Path) -> None:
    whole = pack(tmp_path / "a.tar.gz").read_bytes()
    cuts = random.Random(2)
    for length in [0, 1, 10, 18, 200, *(cuts.randrange(len(whole) - 1000) for _ in range(20))]:
        (tmp_path / "a.tar.gz").write_bytes(whole[:length])
        with pytest.raises(FileError, match="a.tar.gz (is cut or damaged|has no)"):
            unpack(tmp_path / "a.tar.gz", tmp_path / "out", SIZES)
        assert names(tmp_path / "out") == []


def test_a_damaged_archive_is_no_traceback(tmp_path: Path) -> None:
    whole = bytearray(pack(tmp_path / "a.tar.gz").read_bytes())
    damage = random.Random(3)
    for _ in range(30):
        damaged = whole.copy()
        damaged[damage.randrange(len(whole))] ^= 1 << damage.randrange(8)
        (tmp_path / "a.tar.gz").write_bytes(damaged)
        try:
            unpack(tmp_path / "a.tar.gz", tmp_path / "out", SIZES)
        except FileError:
            assert names(tmp_path / "out") == []
        else:
            assert {k: len(v) for k, v in everything(tmp_path / "out").items()} == SIZES
            shutil.rmtree(tmp_path / "out")


def test_a_missing_member(tmp_path: Path) -> None:
    archive = pack(tmp_path / "a.tar.gz", members={"set/queries": MEMBERS["set/queries"]})
    with pytest.raises(FileError, match="has no set/base"):
        unpack(archive, tmp_path / "out", SIZES)
    assert names(tmp_path / "out") == []


def test_too_little_room_to_unpack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = pack(tmp_path / "a.tar.gz")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=304_999))
    with pytest.raises(FileError, match="304,999 bytes free, and 305,000 more are needed"):
        unpack(archive, tmp_path / "out", SIZES)
    assert names(tmp_path) == ["a.tar.gz"]
