"""Payloads and filters by columns of an index in shards: what a list of dicts would answer."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from index_cases import no_fsync, rows
from numpy.typing import NDArray
from payload_cases import dicts, table
from where_cases import filters, in_words, truth

from densehash.errors import FileError, InputError
from densehash.index import Index
from densehash.store import changing

pa = pytest.importorskip("pyarrow", reason="payloads need the extra payload")
pytest.importorskip("pyarrow.compute")
dask = pytest.importorskip("dask", reason="needs the extra dask")
da = pytest.importorskip("dask.array", reason="needs the extra dask")

from densehash.distributed import ShardedIndex, batches, messages  # noqa: E402

CHUNKS = (9, 0, 20, 1, 14)
N = sum(CHUNKS)
X = rows(N)
ROWS = dicts(N)
SKETCHES = ("codes", "signs")
VALUES: dict[str, tuple[list[Any], bool]] = {
    "lang": (["en", "de", "日本語", ""], True),
    "year": ([1990, 2001, 2001.5], True),
    "price": ([0, 0.25, 1.75], True),
    "good": ([True, False], False),
    "tags": (["en", "fr", "x"], False),
}


@pytest.fixture(autouse=True)
def _scheduler() -> Iterator[None]:
    with dask.config.set({"scheduler": "synchronous"}), no_fsync():
        yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.dh"


def spread(rows: NDArray[Any] = X, chunks: tuple[int, ...] = CHUNKS) -> Any:
    return da.from_array(rows, chunks=(chunks, rows.shape[1]))


def build(path: Path, sketch: Any = "codes", **options: Any) -> ShardedIndex:
    told: dict[str, Any] = {"payload": table(ROWS), "n_bits": 32, "random_state": 0}
    return ShardedIndex.build(spread(), path, sketch=sketch, **told | options)


@pytest.fixture(scope="module", params=SKETCHES)
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ShardedIndex:
    """Some rows are gone, and one shard has two segments."""
    with dask.config.set({"scheduler": "synchronous"}), no_fsync():
        made = build(tmp_path_factory.mktemp("shards", numbered=True), request.param)
        for name in made.shards:
            shard = Index.open(made.path / name)
            shard.remove([3, 10, 43])
        shard.add(X[:2], ids=[N, N + 1], payload=table(ROWS[:2]))
    return made


ALL = [*ROWS, *ROWS[:2]]
LIVE = [at for at in range(N + 2) if at not in (3, 10, 43)]


def found(index: ShardedIndex, chosen: Any) -> list[int]:
    hits = index.search(X[:1], N + 2, filter=chosen)
    return sorted(hits.ids[hits.ids >= 0].tolist())


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(chosen=filters(VALUES))
@example({"lang": {"$ne": "en"}, "$not": {"lang": {"$exists": True}}})
def test_a_filter_finds_what_the_same_question_finds_in_dicts(
    index: ShardedIndex, chosen: dict[str, Any]
) -> None:
    expected = [at for at in LIVE if truth(chosen, ALL[at]) is True]
    assert found(index, chosen) == expected
    if "[]" not in repr(chosen):
        assert found(index, in_words(chosen)) == expected


def test_every_kind_of_filter(index: ShardedIndex) -> None:
    pc = pa.compute
    wanted = [at for at in LIVE if (ALL[at]["year"] or 0) > 2005]
    assert found(index, pc.field("year") > 2005) == wanted
    assert found(index, set(wanted)) == wanted
    assert found(index, wanted) == wanted
    assert found(index, lambda ids: np.isin(ids, wanted)) == wanted
    assert found(index, set()) == found(index, {"year": {"$in": []}}) == []


def test_filters_that_are_no_good(index: ShardedIndex, path: Path) -> None:
    for chosen, said in [
        ({"name": "x"}, "no column 'name'"),
        ("year >", "filter"),
        (pa.compute.field("name") == "x", "pyarrow cannot find rows by this expression"),
        (np.ones(N, bool), "or a filter by columns: rows in shards"),
    ]:
        with pytest.raises(InputError, match=said):
            index.search(X[:1], filter=chosen)
    plain = build(path, payload=None)
    with pytest.raises(InputError, match="this index has no payload"):
        plain.search(X[:1], filter={"year": 2000})
    with pytest.raises(InputError, match="this index has no payload"):
        plain.payload([1])
    with pytest.raises(InputError, match="these hits have no payload"):
        _ = plain.search(X[:1]).payload


def test_hits_bring_the_rows_of_their_shards(index: ShardedIndex) -> None:
    hits = index.search(X[:6], 7)
    assert hits.payload.to_pylist() == [ALL[at] for at in hits.ids.reshape(-1)]
    for ids, distances, one in zip(hits.ids, hits.distances, hits.to_dicts(), strict=True):
        assert one == [
            {"id": at, "distance": distance, **ALL[at]}
            for at, distance in zip(ids.tolist(), distances.tolist(), strict=True)
        ]
    assert hits.to_arrow().column("lang").to_pylist() == [
        ALL[at]["lang"] for at in hits.ids.reshape(-1)
    ]
    again = pickle.loads(pickle.dumps(hits))
    assert again.payload.equals(hits.payload)
    of_one = index.search(X[0], 3)
    assert of_one.payload.to_pylist() == [ALL[at] for at in of_one.ids.tolist()]
    few = index.search(X[0], 3, filter=[5])
    assert few.payload.to_pylist() == [ALL[5], *[dict.fromkeys(ALL[5])] * 2]
    none = index.search(X[:1], 2, filter=[])
    assert none.to_dicts() == [[]]
    ids, distances, missing = hits
    assert (ids is hits.ids, distances is hits.distances, missing) == (True, True, ())


def test_payloads_by_ids(index: ShardedIndex) -> None:
    wanted = [N + 1, 5, 30, 5]
    assert index.payload(wanted).to_pylist() == [ALL[at] for at in wanted]
    assert index.payload([]).num_rows == 0
    with pytest.raises(InputError, match="id 10 is not in the index"):
        index.payload([5, 10])
    with pytest.raises(InputError, match="ids"):
        index.payload(["a"])


def test_ids_that_are_strings(path: Path) -> None:
    names = [f"row {at} ä" for at in range(N)]
    index = build(path, ids=names)
    hits = index.search(X[:4], 60)  # more than there are
    for ids, found in zip(hits.ids, hits.to_dicts(), strict=True):
        assert [row.pop("id") for row in found] == ids[:N].tolist()
        assert [row["text"] for row in found] == [
            ROWS[names.index(name)]["text"] for name in ids[:N]
        ]
    assert index.payload(names[7:3:-1]).to_pylist() == ROWS[7:3:-1]


@pytest.mark.parametrize("sketch", SKETCHES)
def test_a_shard_is_an_ordinary_index(path: Path, sketch: str) -> None:
    index = build(path, sketch)
    starts = [0, *accumulate(CHUNKS)]
    for name, (start, stop) in zip(
        index.shards, (pair for pair in pairwise(starts) if pair[0] < pair[1]), strict=True
    ):
        shard = Index.open(path / name)
        assert shard.payload(range(start, stop)).to_pylist() == ROWS[start:stop]
    assert index.info()["payload"] == Index.open(path / name).info()["payload"]
    hits = index.search(X[-1:], 1)
    assert hits.to_dicts()[0][0]["text"] == ROWS[-1]["text"]
    shard.update([N - 1], X[-1:], payload=table([{**ROWS[-1], "text": "new"}]))
    assert index.search(X[-1:], 1).to_dicts()[0][0]["text"] == "new"
    assert index.search(X[-1:], 1, filter={"text": "new"}).ids.tolist() == [[N - 1]]
    shard.remove([N - 1])
    with pytest.raises(FileError, match=f"id {N - 1} is not in the index.*search again"):
        _ = hits.payload


def test_payloads_of_shards_that_are_added_and_replaced(path: Path, tmp_path: Path) -> None:
    index = build(path)
    (name,) = index.add_shard(X[:4], payload=table(ROWS[4:8]))
    assert index.payload(range(N, N + 4)).to_pylist() == ROWS[4:8]
    index.replace_shard(name, spread(X[:4], (2, 2)), payload=ROWS[:4], ids=range(100, 104))
    assert index.payload(range(100, 104)).to_pylist() == ROWS[:4]
    with pytest.raises(InputError, match="so pass payload=... with the columns lang"):
        index.add_shard(X[:4])
    with pytest.raises(InputError, match="X has 4 rows but the payload has 3"):
        index.add_shard(X[:4], payload=table(ROWS[:3]))
    with pytest.raises(InputError, match="the payload lacks 'lang'"):
        index.add_shard(X[:4], payload=table(ROWS[:4]).drop_columns(["lang"]))
    saved = Index.open(path / index.shards[0])
    saved.remove(saved.ids[:-1])
    saved.update(saved.ids, X[:1], payload=table(ROWS[:1]))
    saved.save(tmp_path / "saved")
    with pytest.raises(InputError, match="payload must be None"):
        index.add_shard(tmp_path / "saved", payload=table(ROWS[:1]))
    index.remove_shard(index.shards[0])
    index.add_shard(tmp_path / "saved")
    assert index.payload([8]).to_pylist() == ROWS[:1]
    other = build(tmp_path / "other", payload=None)
    with pytest.raises(InputError, match="this index has no payload"):
        other.add_shard(X[:4], payload=table(ROWS[:4]))
    with pytest.raises(FileError, match="its payload is 'lang .string.*expected 'none'"):
        other.add_shard(tmp_path / "saved")
    assert len(other) == N


@pytest.mark.parametrize("sketch", SKETCHES)
def test_a_shard_whose_payload_is_damaged_is_named(
    path: Path, sketch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changing, "_SMALL", 0)  # large files are checked when they are read
    index = build(path, sketch)
    name = index.shards[1]
    (file,) = (path / name).glob("*payload*")
    whole = file.read_bytes()
    file.write_bytes(whole[:-3] + b"???")  # where an Arrow file says that it is one
    said = f"{name}: .*the payload of a segment is damaged"
    for ask in (
        lambda: index.search(X[:1], filter={"year": {"$gte": 1990}}),
        lambda: index.search(X[:1], 3).payload,
        lambda: index.payload([0]),
    ):
        with pytest.raises(FileError, match=said):
            ask()
    some = index.search(X[:1], N, filter={"year": {"$gte": 0}}, allow_partial=True)
    assert some.missing == (name,)
    lost = range(9, 29)
    assert sorted(some.ids[some.ids >= 0].tolist()) == [
        at for at in range(N) if ROWS[at]["year"] is not None and at not in lost
    ]
    assert len(some.payload) == N  # of the shards that were searched
    with pytest.raises(FileError, match=name):
        index.verify()


def test_a_shard_that_never_rests_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = build(path)
    name = index.shards[2]

    def stale(*_: Any) -> Any:
        raise batches.Stale({name: messages.Look(name, None, "x", 1)})

    monkeypatch.setattr("densehash.distributed.sharded.hits_in", stale)
    with pytest.raises(FileError, match=f"change faster than they are searched: {name}$"):
        index.search(X[:1])


# --- data frames of Dask ------------------------------------------------------------------


VECTORS = np.random.default_rng(0).standard_normal((N, 6), dtype=np.float32)


@pytest.fixture
def frame() -> Any:
    """Vectors, ids and columns, of which the first chunk has hardly any."""
    pd = pytest.importorskip("pandas", reason="Dask's data frames need pandas")
    pytest.importorskip("dask.dataframe", reason="Dask's data frames need pandas")
    return pd.DataFrame(
        {
            "name": [f"r{at:02}" for at in range(N)],
            "vec": [*VECTORS],
            "lang": [None if at < 11 else "de" if at % 2 else "en" for at in range(N)],
            "n": [at if at != 5 else None for at in range(N)],  # floats where one is missing
            "year": [1990 + at for at in range(N)],
        }
    )


def in_parts(frame: Any, n: int = 4) -> Any:
    import dask.dataframe as dd

    limits = [*pairwise(np.linspace(0, len(frame), n + 1).astype(int).tolist())]
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_map(partial(_part, frame), limits, meta=frame.iloc[:0])


def _part(frame: Any, limits: tuple[int, int]) -> Any:
    """A chunk as a reader may give it: whole numbers, where none is missing."""
    part = frame.iloc[slice(*limits)]
    return part if part["n"].isna().any() else part.astype({"n": "int64"})


def test_a_data_frame_of_dask(path: Path, frame: Any) -> None:
    parts = in_parts(frame)
    index = ShardedIndex.build(
        parts, path, ids="name", column="vec", payload=parts[["lang", "n", "year"]]
    )
    assert index.info()["payload"] == {"lang": "string", "n": "float64", "year": "int64"}
    assert len(index.shards) == 4
    hits = index.search(frame, 1, column="vec")
    assert hits.ids[:, 0].tolist() == frame["name"].tolist()
    expected = [
        {"lang": None if at < 11 else row.lang, "n": None if at == 5 else at, "year": row.year}
        for at, row in enumerate(frame.itertuples())
    ]
    assert hits.payload.to_pylist() == expected
    assert [row["year"] for row in hits.to_pandas().to_dict("records")] == [*frame["year"]]
    found = index.search(VECTORS[0], N, filter='lang = "de" and n < 20').ids
    assert sorted(filter(None, found.tolist())) == ["r11", "r13", "r15", "r17", "r19"]
    more = frame.assign(name=[f"s{at}" for at in range(N)])
    index.add_shard(in_parts(more, 2), ids="name", column="vec", payload=frame.iloc[:, 2:])
    assert index.payload(["s40"]).to_pylist() == expected[40:41]


def test_data_frames_that_do_not_suit(path: Path, frame: Any) -> None:
    parts = in_parts(frame)

    def bad(payload: Any, said: str, **options: Any) -> None:
        told = {"column": "vec", **options}
        with pytest.raises(InputError, match=said):
            ShardedIndex.build(parts, path, payload=payload, **told)
        assert not path.exists()

    bad(in_parts(frame, 3)[["year"]], "payload must have the chunks of X, got 3 chunks, X has 4")
    longer = in_parts(frame.iloc[[0, *range(N - 1), 0]])
    bad(longer[["year"]], "payload must have the chunks of X, got 12 rows in chunk 3, X has 11")
    bad(parts["year"], "payload must be a data frame of Dask")
    bad(parts.assign(none=None)[["none"]], "'none' of the payload has nulls only")
    bad(parts[["year"]], "column 'vectors' is not there", column="vectors")
    bad(parts[["year"]], "ids 'key' is not there", ids="key")
    mixed = parts.map_partitions(_texts, meta=frame[["year"]].iloc[:0])
    bad(mixed, "'year' of the payload must be of one type: it is int64 in chunks before number 3")
    other = parts.map_partitions(_renamed, meta=frame[["year"]].iloc[:0], enforce_metadata=False)
    bad(other, "chunk 0 has year, chunk 3 has years")


def _texts(frame: Any) -> Any:
    return frame[["year"]].astype(str if frame["year"].iloc[0] > 2020 else int)


def _renamed(frame: Any) -> Any:
    name = "years" if frame["year"].iloc[0] > 2020 else "year"
    return frame[["year"]].rename(columns={"year": name})


def test_rows_in_two_groups(path: Path) -> None:
    many = rows(600)
    options: dict[str, Any] = {"kind": "grouped", "n_groups": 8, "random_state": 0}
    index = ShardedIndex.build(
        spread(many, (300, 300)), path, sketch="signs", groups_a_row=2, **options
    )
    for name in index.shards:
        (segment,) = Index.open(path / name)._state.segments
        assert segment.columns["entry_rows"].size >= 2 * segment.n_rows
    expected = Index.build(many, **options).search(many[:20], 5, recall=1).ids
    assert index.search(many[:20], 5, recall=1).ids.tolist() == expected.tolist()
