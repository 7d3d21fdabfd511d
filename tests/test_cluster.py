"""A real scheduler and real workers on loopback: the same answers, also where a worker dies."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hasher_cases import MAKERS, learnt, mixture
from index_cases import hasher, rows
from row_cases import InChunks
from typer.testing import CliRunner

from densehash.cli import commands  # noqa: F401  they add themselves to the app
from densehash.cli.app import app
from densehash.errors import FileError, InputError
from densehash.index import Index
from densehash.kmeans import lloyd
from densehash.rows import rows_of

da = pytest.importorskip("dask.array", reason="needs the extra dask")
pytest.importorskip("distributed", reason="needs the extra dask")

from cluster_cases import (  # noqa: E402
    Cluster,
    cluster,
    die_in_the_second_pass,
    die_when_a_shard_is_renamed,
    die_when_asked,
    die_when_encoding,
    die_when_reranking,
)

from densehash.distributed import ShardedIndex, connect, local_cluster  # noqa: E402

X = rows(300)
Q = rows(20, seed=3)
CHUNKS = (40, 60, 50, 0, 90, 60)


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
def client(processes: Cluster) -> Iterator[Any]:
    """Two workers, of which none has died yet."""
    address = json.loads(Path(processes.scheduler_file).read_text())["address"]
    with connect(address) as found:
        while len(found.nthreads()) < 2:
            missing = 2 - len(found.nthreads())
            for _ in range(missing):
                processes.add_worker()
            found.wait_for_workers(2, timeout=60)
        yield found


def dies(client: Any, how: Any) -> str:
    """Tell a worker to die when it comes so far; its address."""
    worker: str = min(client.nthreads())
    client.run(how, workers=[worker])
    return worker


def whole(**options: Any) -> Index:
    return Index.build(X, hasher=hasher(), random_state=0, **options)


def build(path: Path, **options: Any) -> ShardedIndex:
    spread = da.from_array(X, chunks=(CHUNKS, X.shape[1]))
    return ShardedIndex.build(spread, path, hasher=hasher(), random_state=0, **options)


def check(index: ShardedIndex, expected: Index, **asked: Any) -> None:
    found, hits = index.search(Q, 7, **asked), expected.search(Q, 7, **asked)
    assert found.missing == ()
    assert found.ids.tolist() == hits.ids.tolist()
    assert found.distances.tolist() == hits.distances.tolist()


def test_a_cluster_builds_and_searches(client: Any, tmp_path: Path) -> None:
    kind: dict[str, Any] = {"kind": "grouped", "n_groups": 12}
    index, one = build(tmp_path / "a", **kind), whole(**kind)
    assert len(index.shards) == 5
    for how in ("exact", "asymmetric", None):
        check(index, one, rerank=how)
    check(index, one, probes=1, filter=[3, 250, 17, 99])
    odd = ShardedIndex.open(tmp_path / "a").search(Q, 7, filter=lambda ids: ids % 2 == 1)
    assert odd.ids.tolist() == one.search(Q, 7, filter=lambda ids: ids % 2 == 1).ids.tolist()
    index.verify()
    # Each worker has looked at shards of its own.
    held = client.run(_opened_shards)
    assert all(held.values())


@pytest.mark.parametrize("options", [{"hasher": hasher()}, {}], ids=["codes", "signs"])
def test_a_cluster_keeps_payloads(client: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    pc = pytest.importorskip("pyarrow.compute", reason="payloads need the extra payload")
    beside = [{"lang": "abc"[at % 3], "n": at} for at in range(len(X))]
    spread = da.from_array(X, chunks=(CHUNKS, X.shape[1]))
    index = ShardedIndex.build(spread, tmp_path, payload=beside, random_state=0, **options)
    asked: tuple[Any, ...] = ({"lang": "b", "n": {"$gte": 100}}, 'lang = "b" and n >= 100')
    for chosen in (*asked, (pc.field("lang") == "b") & (pc.field("n") >= 100)):
        hits = index.search(Q, len(X), filter=chosen)
        for ids in hits.ids:
            assert sorted(ids[ids >= 0].tolist()) == [*range(100, len(X), 3)]
    some = index.search(Q, 3)
    assert some.payload.to_pylist() == [beside[at] for at in some.ids.reshape(-1)]


def _opened_shards() -> int:
    from densehash.distributed import shards

    return len(shards._open)


def test_a_worker_dies_during_a_build(client: Any, tmp_path: Path) -> None:
    worker = dies(client, die_when_a_shard_is_renamed)
    index = build(tmp_path / "a")
    assert worker not in client.nthreads()
    check(index, whole())
    folders = {file.name for file in (tmp_path / "a").iterdir() if file.is_dir()}
    assert folders == set(index.shards)  # nothing is left of what the dead one has written
    starts = [0, *np.cumsum(CHUNKS).tolist()]
    expected = [list(range(*pair)) for pair in pairwise(starts) if pair[0] < pair[1]]
    assert [Index.open(tmp_path / "a" / one).ids.tolist() for one in index.shards] == expected


@pytest.mark.parametrize("how", [die_when_asked, die_when_reranking])
def test_a_worker_dies_during_a_search(client: Any, tmp_path: Path, how: Any) -> None:
    index = build(tmp_path / "a")
    worker = dies(client, how)
    check(index, whole())
    assert worker not in client.nthreads()


FITTED = mixture()


def spread_rows() -> Any:
    return da.from_array(FITTED, chunks=(256, FITTED.shape[1]))


# One of each way to learn; tests/test_dask.py has all hashers, on the threads of one process.
@pytest.mark.parametrize("name", ["DSH-rows", "AGH"])
def test_a_cluster_fits_and_encodes(client: Any, name: str) -> None:
    """The bytes of the same parts on one machine, from two processes that share nothing."""
    make = MAKERS[name]
    here = make().fit(InChunks(FITTED, spread_rows().chunks[0]))
    there = make().fit(spread_rows())
    assert learnt(there) == learnt(here)
    codes = there.transform(spread_rows()).compute()
    np.testing.assert_array_equal(codes, here.transform(FITTED))


def test_a_worker_dies_during_a_fit(client: Any) -> None:
    make = MAKERS["DSH-rows"]
    worker = dies(client, die_in_the_second_pass)
    hasher = make().fit(spread_rows())
    assert worker not in client.nthreads()
    assert learnt(hasher) == learnt(make().fit(InChunks(FITTED, spread_rows().chunks[0])))


def test_a_worker_dies_during_an_encoding(client: Any, tmp_path: Path) -> None:
    hasher = MAKERS["DSH"]().fit(FITTED)
    worker = dies(client, die_when_encoding)
    da.to_npy_stack(tmp_path / "codes", hasher.transform(spread_rows()))
    assert worker not in client.nthreads()
    found = da.from_npy_stack(tmp_path / "codes").compute()
    np.testing.assert_array_equal(found, hasher.transform(FITTED))


def test_what_travels_does_not_grow_with_the_rows(client: Any) -> None:
    """Each worker combines its own run of chunks; Dask itself counts what it sends."""
    centers = FITTED[:40].copy()
    answer = centers.size * 8 + 40 * 8

    def sent(n_chunks: int) -> int:
        X = da.from_array(np.tile(FITTED[:256], (n_chunks, 1)), chunks=(256, FITTED.shape[1]))
        lloyd(rows_of(X), centers, 1)  # the array itself has gone to both workers
        before = client.run(_bytes_sent)
        lloyd(rows_of(X), centers, 1)
        after = client.run(_bytes_sent)
        return max(int(after[worker] - before[worker]) for worker in after)

    few, many = sent(8), sent(64)
    assert many < 6 * answer
    assert many < few + 4 * answer


def _bytes_sent(dask_worker: Any) -> int:
    return int(dask_worker.transfer_outgoing_bytes_total)


def test_the_command_builds_shards(client: Any, processes: Cluster, tmp_path: Path) -> None:
    address = json.loads(Path(processes.scheduler_file).read_text())["address"]
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "q.npy", Q)
    folder = str(tmp_path / "index.dh")
    run = partial(CliRunner().invoke, app, catch_exceptions=False)
    options = ["--scheduler", address, "--bits", "64", "--shard-rows", "64", "--json"]
    options += ["--sketch", "codes"]
    built = run(["build", str(tmp_path / "x.npy"), "-o", folder, *options])
    assert built.exit_code == 0, built.output
    assert [shard["rows"] for shard in json.loads(built.stdout)["shards"]] == [64] * 4 + [44]
    found = run(["search", folder, str(tmp_path / "q.npy"), "-k", "7", "--json"])
    one = Index.build(X, sketch="codes", n_bits=64, random_state=0)
    assert json.loads(found.stdout)["ids"] == one.search(Q, 7).ids.tolist()
    there = run(["search", folder, str(tmp_path / "q.npy"), "--scheduler", address, "--json"])
    assert json.loads(there.stdout)["ids"] == one.search(Q, 10).ids.tolist()
    assert "all 5 shards are whole" in run(["verify", folder, "--scheduler", address]).stdout
    assert "5, of 64, 64" in run(["info", folder]).stdout


def test_ids_are_compared_by_the_workers(client: Any, tmp_path: Path) -> None:
    ids = np.random.default_rng(0).permutation(300)
    spread = da.from_array(ids, chunks=(CHUNKS,))
    index = build(tmp_path / "a", ids=spread)
    check(index, whole(ids=ids))
    twice = np.where(ids == ids[0], ids[299], ids)
    with pytest.raises(InputError, match=f"{ids[299]} is there twice, in chunks 0 and 5"):
        build(tmp_path / "b", ids=da.from_array(twice, chunks=(CHUNKS,)))


def test_errors_of_workers_are_ours(client: Any, tmp_path: Path) -> None:
    spoilt = X.copy()
    spoilt[211, 3] = np.nan
    with pytest.raises(InputError, match="got NaN in row 211, column 3"):
        ShardedIndex.build(
            da.from_array(spoilt, chunks=(CHUNKS, X.shape[1])), tmp_path / "a", hasher=hasher()
        )
    index = build(tmp_path / "a")
    lost = index.shards[2]
    (tmp_path / "a" / lost).rename(tmp_path / "away")
    with pytest.raises(FileError, match=f"{lost}.*is not there.*allow_partial=True"):
        index.search(Q)
    assert index.search(Q, allow_partial=True).missing == (lost,)
    with pytest.raises(InputError, match="filter must return booleans"):
        index.search(Q, filter=lambda ids: ids)


# --- the way to a cluster -----------------------------------------------------------------------


def test_rows_of_this_process_do_not_travel(client: Any, tmp_path: Path) -> None:
    """An array, or a Source with files that only we have open, becomes a shard from here."""
    index = ShardedIndex.build(_Here(X), tmp_path / "a", hasher=hasher())
    check(index, whole())
    index.add_shard(X[:5], ids=range(1000, 1005))
    assert len(index) == 305


class _Here(np.ndarray[Any, Any]):
    def __new__(cls, array: Any) -> Any:
        return np.asarray(array).view(cls)

    def __reduce__(self) -> Any:
        raise AssertionError("sent to a worker")

    def __reduce_ex__(self, _: Any) -> Any:
        raise AssertionError("sent to a worker")


def test_no_scheduler_answers() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(FileError, match=f"no scheduler answers at {address} within 0.5 s"):
        connect(address, timeout=0.5)
    for wrong in ("somewhere", "tcp://127.0.0.1", "post://127.0.0.1:1", 8786, ""):
        with pytest.raises(InputError, match="is no address of a scheduler"):
            connect(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="timeout must be"):
        connect(address, timeout=0)


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(100)])
def test_somebody_else_listens(says: bytes) -> None:
    """Who says nothing, and who says something else, is no scheduler; we do not wait for him."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        held = []

        def answer() -> None:
            try:
                while True:
                    held.append(server.accept()[0])
                    held[-1].sendall(says)
            except OSError:
                pass

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(FileError, match=f"no scheduler answers at {address}"):
            connect(address, timeout=0.5)
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in held:
            connection.close()


def test_a_worker_is_no_scheduler(client: Any) -> None:
    worker = min(client.nthreads())
    with pytest.raises(FileError, match="there is a Worker"):
        connect(worker)


def test_a_local_cluster() -> None:
    code = """
import numpy as np
import dask.array as da
from densehash import LSH
from densehash.distributed import local_cluster

if __name__ == "__main__":
    X = np.random.default_rng(0).standard_normal((300, 4))
    with local_cluster(2) as client:
        assert list(client.nthreads().values()) == [1, 1]
        codes = LSH(8, random_state=0).fit(X).transform(da.from_array(X, chunks=(100, 4)))
        assert (codes.compute() == LSH(8, random_state=0).fit_transform(X)).all()
    print("good")
"""
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (found.stdout, found.stderr) == ("good\n", "")
    with pytest.raises(InputError, match="n_workers must be at least 1"), local_cluster(0):
        pass
