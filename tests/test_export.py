"""Exports, each asked in the other system itself: the same rows, at the same Hamming distances."""

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_cases import ASK, Answer, N, Q, X, build, expected, needs, opened_sqlite, payload, texts
from index_cases import hasher as shared_hasher
from test_cli_index import bad, good

import densehash.export
from densehash import AGH, ITQ, Index, InputError, hamming
from densehash.errors import FileError, MissingExtraError
from densehash.export import TARGETS, bit_strings, codes_of, export
from densehash.export.rows import Part, Snapshot
from densehash.index.kinds import Grouped

Capture = pytest.CaptureFixture[str]
HAS_ARROW = importlib.util.find_spec("pyarrow") is not None
WITH_PAYLOAD = [target for target in ASK if TARGETS[target].takes_vectors]
every_target = pytest.mark.parametrize("target", ASK)


def asked(target: str, index: Index, path: Path, **options: Any) -> Answer:
    """What the other system says of an export."""
    needs(*ASK[target].packages)
    done = export(index, target, path, **options)
    assert done.n_rows == len(index)
    assert done.paths[0] == path
    assert all(place.exists() for place in done.paths)
    assert {place.name for place in path.parent.iterdir()} == {place.name for place in done.paths}
    return ASK[target].ask(path, index)


def test_every_system_is_asked() -> None:
    missing = set(TARGETS) - {*ASK, "pgvector"}  # which test_export_postgres.py asks
    assert not missing, (
        f"no test asks {', '.join(missing)} for what was exported: add how to ask it to ASK in "
        "tests/export_cases.py"
    )


# --- rows and distances -------------------------------------------------------------------


@every_target
@pytest.mark.parametrize("n_bits", [1, 13, 64, 100])
def test_distances_are_the_same(tmp_path: Path, target: str, n_bits: int) -> None:
    index = build(n_bits)
    found = asked(target, index, tmp_path / "out")
    assert found.ids == index.ids.tolist()
    assert found.distances == expected(index).tolist()


@every_target
@pytest.mark.parametrize(
    "options",
    [
        {"id_type": "string"},
        {"kind": "grouped", "n_groups": 5},
        {"kind": "multi"},
        {"metric": "cosine"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_ids_kinds_and_metrics(tmp_path: Path, target: str, options: dict[str, Any]) -> None:
    index = build(40, **options)
    found = asked(target, index, tmp_path / "out")
    assert found.ids == index.ids.tolist()
    assert found.distances == expected(index).tolist()


@every_target
def test_an_index_without_rows(tmp_path: Path, target: str) -> None:
    needs(*ASK[target].packages)
    index = build(13)
    index.remove(index.ids)
    assert export(index, target, tmp_path / "out").n_rows == 0


@every_target
def test_more_rows_than_a_part(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("densehash.export.rows._PART_ROWS", 9)
    index = build(13, id_type="string")
    found = asked(target, index, tmp_path / "out")
    assert found.ids == index.ids.tolist()
    assert found.distances == expected(index).tolist()


@every_target
@pytest.mark.parametrize("kind", [{}, {"kind": "grouped", "n_groups": 5}], ids=["flat", "grouped"])
def test_shards_are_exported_as_one_index(
    tmp_path: Path, target: str, kind: dict[str, Any]
) -> None:
    da = pytest.importorskip("dask.array", reason="needs the extra dask")
    from densehash.distributed import ShardedIndex

    needs(*ASK[target].packages)
    ask = ASK[target].ask
    table = payload() if target in WITH_PAYLOAD and HAS_ARROW else None
    vectors = {"vectors": True} if TARGETS[target].takes_vectors else {}
    one = build(13, payload=table, **kind)
    ids = one.ids[::-1]
    rows = da.from_array(one.get(ids), chunks=((20, 30, len(ids) - 50), -1))
    beside = {} if table is None else {"payload": one.payload(ids)}
    shards = ShardedIndex.build(
        rows, tmp_path / "shards", ids=ids, hasher=one.hasher, random_state=0, **beside, **kind
    )
    expected = ask(export(one, target, tmp_path / "one", **vectors).paths[0], one)
    done = export(shards, target, tmp_path / "out", **vectors)
    assert done.n_rows == len(one)
    assert ask(tmp_path / "out", one) == expected
    assert np.array_equal(codes_of(shards, Q), codes_of(one, Q))


@every_target
def test_largest_ids(tmp_path: Path, target: str) -> None:
    ids = np.array([2**63 - 1, 0, 2**40])
    index = Index.build(X[:3], ids=ids, hasher="lsh", n_bits=13, random_state=0)
    assert asked(target, index, tmp_path / "out").ids == sorted(ids.tolist())


def test_shards_on_the_command_line(capsys: Capture, tmp_path: Path) -> None:
    needs("pyarrow")
    pytest.importorskip("dask", reason="needs the extra dask")
    from densehash.distributed import ShardedIndex, shards

    index = ShardedIndex.build(X, tmp_path / "a", hasher="lsh", n_bits=13, random_state=0)
    out = tmp_path / "a.parquet"
    assert "a Parquet file" in good(capsys, "export", index.path, "--to", "parquet", "-o", out)
    table = importlib.import_module("pyarrow.parquet").read_table(out)
    assert table["id"].to_pylist() == [*range(len(X))]
    ShardedIndex.build(X, tmp_path / "b", random_state=0)
    said = bad(capsys, "export", tmp_path / "b", "--to", "parquet", "-o", tmp_path / "b.parquet")
    assert "only codes can be exported: build it with sketch='codes'" in said
    index.remove_shard(index.shards[0])
    assert export(index, "parquet", out, force=True).n_rows == 0
    (name,) = index.add_shard(X)
    (file,) = (index.path / name).glob("*.codes.npy")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    shards._open.clear()  # as a new process has it
    assert name in bad(capsys, "export", index.path, "--to", "parquet", "-o", out, "--force")


# --- payload and vectors ------------------------------------------------------------------


@pytest.mark.parametrize("target", WITH_PAYLOAD)
def test_payloads_of_all_types(tmp_path: Path, target: str) -> None:
    index = build(13, payload=payload())
    found = asked(target, index, tmp_path / "out").payload
    assert found is not None
    rows = index.payload(index.ids).to_pylist()
    stored = ASK[target].stored
    assert found == [{name: stored(name, value) for name, value in row.items()} for row in rows]


@pytest.mark.parametrize("target", WITH_PAYLOAD)
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_vectors(tmp_path: Path, target: str, dtype: str) -> None:
    rows = (X * 10).round().clip(0, 255).astype(dtype)
    index = Index.build(rows, hasher="lsh", n_bits=13, random_state=0)
    needs(*ASK[target].packages, "pyarrow")
    export(index, target, tmp_path / "out", vectors=True)
    assert ASK[target].ask(tmp_path / "out", index).vectors == rows.astype(np.float32).tolist()


@pytest.mark.parametrize("target", WITH_PAYLOAD)
def test_columns_with_names_of_ours(tmp_path: Path, target: str) -> None:
    needs("pyarrow")
    rows = [{"id": at, "Code": "c", "payload_id": "p", "a \"b\" 'c'": 1.5} for at in range(N)]
    index = build(13, payload=rows)
    found = asked(target, index, tmp_path / "out", vectors=True)
    assert found.payload is not None
    names = ["payload_payload_id", "payload_Code", "payload_id", "a \"b\" 'c'"]
    assert [*found.payload[0]] == names
    assert found.ids == index.ids.tolist()


@pytest.mark.parametrize("target", ["duckdb", "sqlite-vec"])
def test_names_that_differ_in_capitals_are_refused(tmp_path: Path, target: str) -> None:
    needs(*ASK[target].packages, "pyarrow")
    index = build(13, payload=[{"Title": "a", "title": "b"}] * N)
    with pytest.raises(InputError, match="'Title' and 'title' .* apart: export to parquet"):
        export(index, target, tmp_path / "out")
    assert not [*tmp_path.iterdir()]


def test_sqlite_has_no_larger_numbers(tmp_path: Path) -> None:
    needs("sqlite_vec", "pyarrow")
    import pyarrow as pa

    counts = pa.table({"count": pa.array([2**63] * N, pa.uint64())})
    index = Index.build(X[:N], hasher="lsh", n_bits=13, payload=counts)
    with pytest.raises(InputError, match="'count' has numbers above"):
        export(index, "sqlite-vec", tmp_path / "out")
    assert not [*tmp_path.iterdir()]


def test_lance_has_no_dots(tmp_path: Path) -> None:
    needs("lance", "pyarrow")
    index = build(13, payload=[{"a.b": 1}] * N)
    with pytest.raises(InputError, match="'a.b': export to parquet"):
        export(index, "lance", tmp_path / "out")


def test_half_floats(tmp_path: Path) -> None:
    needs("duckdb", "pyarrow")
    import pyarrow as pa

    halves = pa.table({"half": pa.array(np.arange(N, dtype=np.float16))})
    index = Index.build(X[:N], hasher="lsh", n_bits=13, payload=halves, random_state=0)
    for target in ("parquet", "duckdb"):
        (folder := tmp_path / target).mkdir()
        found = asked(target, index, folder / "out").payload
        assert found == [{"half": float(at)} for at in range(N)]


# --- the queries that are printed ---------------------------------------------------------


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("vectors", [False, True])
def test_the_query_for_duckdb(tmp_path: Path, metric: str, vectors: bool) -> None:
    needs("duckdb", "pyarrow")
    import duckdb

    index = build(100, metric=metric)
    done = export(index, "duckdb", tmp_path / "out.duckdb", vectors=vectors)
    assert (tmp_path / "out.duckdb.sql").read_text("utf-8") == done.query
    values: dict[str, Any] = {"code": texts(index)[0]}
    if vectors:
        values["vector"] = Q[0].tolist()
    with duckdb.connect(str(tmp_path / "out.duckdb")) as database:
        found = database.execute(done.query, values).fetchall()
    check_answer(found, index, vectors=vectors)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("vectors", [False, True])
def test_the_query_for_sqlite(tmp_path: Path, metric: str, vectors: bool) -> None:
    needs("sqlite_vec")
    index = build(100, metric=metric)
    done = export(index, "sqlite-vec", tmp_path / "out", vectors=vectors)
    code = codes_of(index, Q)[0].tobytes()
    values = {"code": code, "vector": Q[0].tobytes()} if vectors else (code,)
    with opened_sqlite(tmp_path / "out") as database:
        found = database.execute(done.query, values).fetchall()
    check_answer(found, index, vectors=vectors)


def check_answer(found: list[tuple[Any, ...]], index: Index, *, vectors: bool) -> None:
    """The ten nearest rows, as a search of the index finds them."""
    if not vectors:  # hamming distances, which tie
        codes = np.concatenate([part.codes for part in Snapshot(index).parts()])
        near, _ = hamming.top_k(codes_of(index, Q[:1]), codes, 10)
        assert [row[1] for row in found] == near[0].tolist()
        return
    hits = index.search(Q[:1], 10, rerank="exact", candidates=100)
    np.testing.assert_allclose([row[1] for row in found], hits.distances[0], rtol=1e-4, atol=1e-5)
    assert [row[0] for row in found] == hits.ids[0].tolist()


@pytest.mark.parametrize("target", [target for target, case in ASK.items() if case.in_python])
@pytest.mark.parametrize("id_type", ["int64", "string"])
def test_the_queries_in_python(tmp_path: Path, target: str, id_type: str) -> None:
    needs(*ASK[target].packages)
    index = build(16, id_type=id_type)
    index.save(tmp_path / "index.dh")
    done = export(index, target, tmp_path / "out")
    names: dict[str, Any] = {"densehash": densehash, "np": np, "json": json, "Path": Path}
    names |= {"Q": Q, "index": index}
    query = done.query.replace("open(...)", f"open({str(tmp_path / 'index.dh')!r})")
    if target == "usearch":  # a search of its graph may miss a row
        query = query.replace("search(codes, 10)", "search(codes, 10, exact=True)")
        assert "exact=True" in query
    exec(query, names)
    hits = index.search(Q, 10, rerank=None)
    found = names["matches"].distances if "matches" in names else names["distances"]
    assert np.asarray(found).astype(int).tolist() == hits.distances.tolist()
    if (tmp_path / "out.ids.json").exists():  # of a system whose keys are numbers
        assert set(names["ids"].reshape(-1)) <= set(index.ids)


# --- faiss: the groups and the hasher -----------------------------------------------------


@pytest.mark.parametrize(("id_type", "metric"), [("int64", "ip"), ("string", "l2")])
def test_faiss_has_the_same_groups(tmp_path: Path, id_type: str, metric: str) -> None:
    needs("faiss")
    import faiss

    index = build(40, kind="grouped", n_groups=12, id_type=id_type, metric=metric)
    export(index, "faiss", tmp_path / "out")
    there: Any = faiss.read_index_binary(str(tmp_path / "out"))
    kind, keys = index._state.kind, np.arange(len(index)) if id_type == "string" else index.ids
    assert isinstance(kind, Grouped)
    n_probes = kind.n_probes(index.settings.probes)
    assert (there.nlist, there.nprobe) == (len(kind.centers), n_probes)
    labels = kind.labels(index.get(index.ids))
    for group in range(there.nlist):
        size = there.invlists.list_size(group)
        found: Any = faiss.rev_swig_ptr(there.invlists.get_ids(group), size) if size else []
        assert [*found] == keys[labels == group].tolist()


def test_faiss_has_the_groups_of_ready_made_codes(tmp_path: Path) -> None:
    needs("faiss")
    import faiss

    learnt = ITQ(16, n_iter=0, random_state=0).fit(X)
    codes = learnt.transform(X)
    index = Index.from_codes(codes, hasher=learnt, kind="grouped", n_groups=7, random_state=0)
    export(index, "faiss", tmp_path / "out")
    there: Any = faiss.read_index_binary(str(tmp_path / "out"))
    there.nprobe = 7
    asked_for = learnt.transform(Q)
    distances, _ = there.search(asked_for, 5)
    assert distances.tolist() == index.search(asked_for, 5, probes=7).distances.tolist()
    kind = index._state.kind
    assert isinstance(kind, Grouped)
    centers = faiss.downcast_IndexBinary(there.quantizer).reconstruct_n(0, 7)
    bits = np.unpackbits(centers, axis=1, bitorder="little")
    assert np.array_equal(bits, kind.centers.centers + kind.centers.shift >= 0.5)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_faiss_makes_the_codes_of_queries(tmp_path: Path, metric: str) -> None:
    needs("faiss")
    import faiss

    index = build(100, metric=metric, hasher=ITQ(8, random_state=0))
    done = export(index, "faiss", tmp_path / "out")
    transform = faiss.read_VectorTransform(str(done.paths[-1]))
    scaled = re.search(r"scaled to length ([\d.]+|one)", done.query)
    assert (scaled is None) == (metric == "l2")
    asked = Q
    if scaled is not None:
        length = 1 if scaled[1] == "one" else float(scaled[1])
        asked = (Q * length / np.linalg.norm(Q, axis=1, keepdims=True)).astype(np.float32)
    margins = transform.apply(np.ascontiguousarray(asked))
    np.testing.assert_allclose(margins, index.hasher.project(asked), rtol=1e-3, atol=1e-4)
    codes = np.packbits(margins >= 0, axis=1, bitorder="little")
    assert codes.tolist() == codes_of(index, Q).tolist()


def test_hashers_that_faiss_has_not(tmp_path: Path) -> None:
    needs("faiss")
    index = build(8, hasher=AGH(8, n_anchors=20, random_state=0))
    with pytest.raises(InputError, match="AGH is not linear"):
        densehash.export.faiss_transform(index.hasher)
    done = export(index, "faiss", tmp_path / "out")
    assert done.paths == (tmp_path / "out",)
    assert "codes_of" in done.query
    far = shared_hasher().__class__(8, random_state=0).fit(X.astype(np.float64) + 1e7)
    with pytest.raises(InputError, match="float64"):
        densehash.export.faiss_transform(far)


# --- mistakes -----------------------------------------------------------------------------


def test_bit_i_is_character_i() -> None:
    bits = np.random.default_rng(0).integers(0, 2, (5, 13))
    assert bit_strings(densehash.pack(bits), 13) == ["".join(map(str, row)) for row in bits]


@pytest.mark.parametrize("target", TARGETS)
def test_an_index_of_signs_has_no_codes(tmp_path: Path, target: str) -> None:
    needs(*(ASK[target].packages if target in ASK else ["pyarrow"]))
    index = Index.build(X, random_state=0)
    with pytest.raises(InputError, match="keeps signs, .* build it with sketch='codes'"):
        export(index, target, tmp_path / "out")


def test_an_unknown_target(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="to must be 'faiss' or .* 'sqlite-vec' .*, got 'excel'"):
        export(build(), "excel", tmp_path / "out")
    with pytest.raises(AttributeError, match="no attribute 'to_excel'"):
        densehash.export.to_excel  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("target", [target for target in ASK if not TARGETS[target].takes_vectors])
def test_targets_without_vectors(tmp_path: Path, target: str) -> None:
    with pytest.raises(InputError, match=f"{target} gets codes alone"):
        export(build(), target, tmp_path / "out", vectors=True)


def test_vectors_that_are_not_kept(tmp_path: Path) -> None:
    needs("pyarrow")
    index = Index.build(X, hasher="lsh", n_bits=13, keep_vectors=False)
    with pytest.raises(InputError, match="keeps no vectors"):
        export(index, "parquet", tmp_path / "out", vectors=True)


@pytest.mark.parametrize("target", [target for target, case in ASK.items() if case.packages])
def test_a_missing_package(tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, ASK[target].packages[0], None)
    with pytest.raises(MissingExtraError, match=r"pip install densehash\[(export|payload)\]"):
        export(build(), target, tmp_path / "out")
    assert not [*tmp_path.iterdir()]


@every_target
def test_what_is_there_stays(tmp_path: Path, target: str) -> None:
    index = build(13, id_type="string")
    before = asked(target, index, tmp_path / "out")
    index.remove(index.ids[:1])
    with pytest.raises(FileError, match="exists already: .*--force"):
        export(index, target, tmp_path / "out")
    assert ASK[target].ask(tmp_path / "out", build(13, id_type="string")) == before
    assert asked(target, index, tmp_path / "out", force=True).ids == index.ids.tolist()


@every_target
def test_an_error_on_the_way_leaves_nothing(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(*ASK[target].packages, "pyarrow")
    monkeypatch.setattr("densehash.export.rows._PART_ROWS", 9)
    index, parts = build(13, id_type="string"), Snapshot.parts

    def failing(rows: Snapshot) -> Iterator[Part]:
        for number, part in enumerate(parts(rows)):
            if number == 3:
                raise FileError("the disk is gone")
            yield part

    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "parts", failing)
        with pytest.raises(FileError, match="the disk is gone"):
            export(index, target, tmp_path / "out")
    assert not [*tmp_path.iterdir()]
    assert asked(target, index, tmp_path / "out").ids == index.ids.tolist()


@every_target
def test_folders_of_others_are_not_replaced(tmp_path: Path, target: str) -> None:
    needs(*ASK[target].packages)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(FileError, match="is a directory|no dataset of Lance"):
        export(build(), target, tmp_path / "out", force=True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


@every_target
def test_no_folder_to_write_in(tmp_path: Path, target: str) -> None:
    needs(*ASK[target].packages)
    with pytest.raises(FileError, match="is no folder"):
        export(build(), target, tmp_path / "none" / "out")


def test_damage_is_not_exported(tmp_path: Path) -> None:
    needs("faiss")
    Index.build(X, hasher="lsh", n_bits=64, path=tmp_path / "index.dh")
    (codes,) = (tmp_path / "index.dh").glob("*codes*")
    data = bytearray(codes.read_bytes())
    data[-1] ^= 1
    codes.write_bytes(data)
    with pytest.raises(FileError, match="damaged|checksum"):
        export(Index.open(tmp_path / "index.dh"), "faiss", tmp_path / "out")


# --- the command --------------------------------------------------------------------------


def test_the_command(capsys: Capture, tmp_path: Path) -> None:
    needs("faiss")
    build(13).save(tmp_path / "a.dh")
    out = good(capsys, "export", tmp_path / "a.dh", "--to", "faiss", "-o", tmp_path / "a.faiss")
    assert "read_index_binary" in out
    arguments = ("export", tmp_path / "a.dh", "--to", "faiss", "-o", tmp_path / "a.faiss")
    assert "--force" in bad(capsys, *arguments)
    said = json.loads(good(capsys, *arguments, "--force", "--json"))
    assert said["rows"] == len(build(13))
    assert said["paths"][0] == str(tmp_path / "a.faiss")


def test_the_command_says_what_is_wrong(capsys: Capture, tmp_path: Path) -> None:
    needs("pyarrow")
    build(13).save(tmp_path / "a.dh")
    Index.build(X, random_state=0).save(tmp_path / "signs.dh")
    to = ("-o", tmp_path / "out", "--to")
    assert "'sqlite-vec'" in bad(capsys, "export", tmp_path / "a.dh", *to, "excel")
    assert "--sketch codes" in bad(capsys, "export", tmp_path / "signs.dh", *to, "pgvector")
    assert "--vectors" in bad(capsys, "export", tmp_path / "a.dh", *to, "faiss", "--vectors")


def test_help_names_every_target(capsys: Capture) -> None:
    out = good(capsys, "export", "--help")
    assert all(target in out for target in TARGETS)


def test_hamming_is_what_is_compared() -> None:
    index = build(13)
    assert expected(index).shape == (len(Q), len(index))
    assert hamming.distances(codes_of(index, Q), codes_of(index, Q)).diagonal().sum() == 0


def test_the_examples_of_the_docs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("faiss", "usearch", "pyarrow", "lance", "duckdb", "sqlite_vec")
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[1] / "docs" / "export.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(example, names)
    assert names["asked"].tolist() == names["codes"].tolist()
    for found in (names["ids"][0], [row[0] for row in names["ranked"]], names["matches"][0].keys):
        assert found[0] == 0
    assert names["nearest"][0] == (0, 0)
    assert names["table"].column_names == ["id", "code", "vector", "year"]
    assert len(names["same"]) == 100
    for query in re.findall(r"```sql\n(.*?)```", text, re.S):
        made = (tmp_path / "photos.duckdb.sql").read_text() + names["done"].query.replace('"', "")
        assert query in made
