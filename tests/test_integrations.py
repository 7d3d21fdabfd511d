"""Adapters: what they share, and those that need no package of their own."""

import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from integration_cases import run_example
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline

from densehash import FileError, HashingNeighbors, Index, InputError, MissingExtraError
from densehash.integrations.sklearn import Retriever

ROOT = Path(__file__).parents[1]
HAS_ARROW = importlib.util.find_spec("pyarrow") is not None
with_documents = pytest.mark.skipif(not HAS_ARROW, reason="documents need the extra payload")

X = np.random.default_rng(0).standard_normal((30, 8), dtype=np.float32)
IDS = [f"document {at}" for at in range(30)]
TEXTS = [f"text {at} ä" for at in range(30)]
METADATA: list[dict[str, Any]] = [
    {
        "lang": ["en", "de"][at % 2],
        "year": 2000 + at,
        "tags": ["odd"] * (at % 2) + ["small"] * (at < 10),
        "nested": {"deep": [at, None, 1.5]},  # no column
        "mixed": at if at % 2 else "even",  # neither
        "_own": "x",
    }
    for at in range(30)
]
ALIKE = [{"lang": row["lang"], "year": row["year"] + at / 2} for at, row in enumerate(METADATA)]


def documents(**options: Any) -> Any:
    from densehash.integrations.documents import Documents

    found = Documents(**options)
    found.put(IDS[:20], X[:20], TEXTS[:20], METADATA[:20])
    found.put(IDS[20:], X[20:], TEXTS[20:], METADATA[20:])
    return found


# --- documents ----------------------------------------------------------------------------


@with_documents
@pytest.mark.parametrize("metric", ["cosine", "l2", "ip"])
def test_documents_are_found_as_they_were_given(tmp_path: Path, metric: str) -> None:
    made = documents(path=tmp_path / "store", metric=metric)
    from densehash.integrations.documents import Documents

    scaled = X / np.linalg.norm(X, axis=1, keepdims=True)
    true = {
        "cosine": 1 - scaled @ scaled[3],
        "l2": np.linalg.norm(X - X[3], axis=1),
        "ip": -X @ X[3],
    }[metric]
    for store in (made, Documents(path=tmp_path / "store")):
        assert len(store) == 30
        assert store.metric == metric
        found = store.search(X[3], 5)
        nearest = np.argsort(true)[:5].tolist()
        assert [each.id for each in found] == [IDS[at] for at in nearest]
        assert [each.text for each in found] == [TEXTS[at] for at in nearest]
        assert [each.metadata for each in found] == [METADATA[at] for at in nearest]
        distances = np.array([each.distance for each in found], float)
        np.testing.assert_allclose(distances, true[nearest], atol=1e-5)


@with_documents
def test_columns_are_what_metadata_have_in_common() -> None:
    store = documents()
    columns = store.index.info()["payload"]
    assert columns == {
        "text": "string",
        "metadata": "string",
        "lang": "string",
        "year": "float64",
        "tags": "list of strings",
    }
    wanted = {"lang": "de", "tags": "small", "year": {"$gt": 2001}}
    assert store.matching(wanted) == sorted(IDS[at] for at in (3, 5, 7, 9))
    assert {found.id for found in store.search(X[0], 30, filter=wanted)} == {
        *store.matching(wanted)
    }
    with pytest.raises(InputError, match="no column 'nested'"):
        store.search(X[0], 3, filter={"nested": 1})


@with_documents
def test_metadata_may_differ_from_document_to_document() -> None:
    store = documents(columns={"lang": "string"})
    assert [*store.index.info()["payload"]] == ["text", "metadata", "lang"]
    other = {"text": "of metadata", "metadata": 3, "year": "of another type", "new": True}
    store.put(["other"], X[:1], ["another"], [other])
    (found,) = store.get(["other"])
    assert (found.text, found.metadata, found.distance) == ("another", other, None)
    assert store.matching({"lang": {"$exists": False}}) == ["other"]


@with_documents
@pytest.mark.parametrize("n", [1, 2])
def test_few_first_documents(tmp_path: Path, n: int) -> None:
    from densehash.integrations.documents import Documents

    store = Documents(path=tmp_path / "store")
    assert store.search(X[0], 4) == store.get(IDS) == []
    assert store.matching(None) == []
    store.remove(IDS)
    store.put([], np.empty((0, 8)), [], [])
    assert store.index is None
    with pytest.raises(InputError, match="no documents yet"):
        store.save(tmp_path / "other")
    store.put(IDS[:n], X[:n], TEXTS[:n], ALIKE[:n])
    assert store.matching(None) == IDS[:n]
    assert len(store.search(X[0], 4)) == n
    store.remove(IDS)
    for emptied in (store, Documents(path=tmp_path / "store")):
        assert emptied.search(X[0], 4, filter={"lang": "en"}) == emptied.get(IDS) == []
        assert emptied.matching({"lang": "en"}) == []
    store.put(IDS, X, TEXTS, ALIKE)
    assert [found.id for found in store.search(X[7], 1)] == [IDS[7]]


@with_documents
def test_documents_take_the_place_of_others_and_go() -> None:
    store = documents()
    store.put(IDS[4:6], X[8:10], ["new", "newer"], [{"lang": "fr"}, {}])
    assert len(store) == 30
    assert [found.text for found in store.get([IDS[5], "nobody", IDS[4]])] == ["newer", "new"]
    assert store.matching({"lang": "fr"}) == [IDS[4]]
    store.remove([IDS[4], "nobody"])
    assert len(store) == 29
    assert store.get([IDS[4]]) == []


@with_documents
@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"year": "MMXX"}, "'year' of the payload cannot be kept.*columns=..."),
        ({"year": 2**60 + 1}, "'year' of the payload cannot be kept"),
        ({"when": {1, 2}}, "metadata of 'bad' must be something JSON can hold"),
        ({"loop": ...}, "metadata of 'bad' must be something JSON can hold"),
    ],
)
def test_what_does_not_fit_is_refused(metadata: dict[str, Any], message: str) -> None:
    store = documents()
    with pytest.raises(InputError, match=message):
        store.put(["good", "bad"], X[:2], ["a", "b"], [{}, metadata])
    assert len(store) == 30
    assert store.get(["good", "bad"]) == []


@with_documents
def test_a_store_is_opened_as_it_was_made(tmp_path: Path) -> None:
    from densehash.integrations.documents import Documents

    memory = documents(metric="l2", columns={"lang": "string"})
    memory.save(tmp_path / "store")
    assert len(Documents(path=tmp_path / "store", metric="l2", columns={"lang": "string"})) == 30
    with pytest.raises(InputError, match="has 'l2': leave metric out"):
        Documents(path=tmp_path / "store", metric="cosine")
    with pytest.raises(InputError, match="has {'lang': 'string'}: leave columns out"):
        Documents(path=tmp_path / "store", columns={"year": "int64"})
    Index.build(X, random_state=0, path=tmp_path / "others")
    with pytest.raises(InputError, match="an index without documents"):
        Documents(path=tmp_path / "others")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    with pytest.raises(FileError):
        Documents(path=tmp_path / "folder")
    for columns, message in (
        ({"text": "string"}, "'text', a name that the store uses itself"),
        ({"year": "number"}, "columns must be a dict of names and types"),
    ):
        with pytest.raises(InputError, match=message):
            Documents(columns=columns)


@with_documents
def test_the_first_documents_of_two_stores_of_one_folder(tmp_path: Path) -> None:
    """Neither takes the place of the other."""
    from densehash.integrations.documents import Documents

    stores = [Documents(path=tmp_path / "store") for _ in range(2)]
    for at, store in enumerate(stores):
        store.put(IDS[at : at + 1], X[at : at + 1], TEXTS[at : at + 1], ALIKE[at : at + 1])
    assert Documents(path=tmp_path / "store").matching(None) == IDS[:2]


@with_documents
def test_columns_that_another_store_of_the_folder_has_chosen(tmp_path: Path) -> None:
    """Both have opened the folder while it was empty."""
    from densehash.integrations.documents import Documents

    Documents(path=tmp_path / "store").put(IDS[:1], X[:1], TEXTS[:1], ALIKE[:1])
    Index.open(tmp_path / "store").remove(IDS)
    stores = [Documents(path=tmp_path / "store") for _ in range(2)]
    stores[0].put(IDS[:2], X[:2], TEXTS[:2], [{"a": 1}, {"b": "x"}])
    stores[1].put(IDS[2:3], X[2:3], TEXTS[2:3], [{"c": True}])
    assert [found.metadata for found in stores[1].get(IDS[:3])] == [
        {"a": 1},
        {"b": "x"},
        {"c": True},
    ]
    assert stores[1].matching({"b": "x"}) == IDS[1:2]


@with_documents
def test_documents_of_an_index_that_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same are found before and after."""
    from densehash.integrations.documents import Documents

    monkeypatch.setattr(Index, "create", partial(Index.create, learn_at=25, random_state=0))
    store = Documents()
    for at in range(0, 30, 10):
        store.put(IDS[at : at + 10], X[at : at + 10], TEXTS[at : at + 10], ALIKE[at : at + 10])
        assert store.index is not None
        assert (store.index.sketch == "vectors") == (at < 20)
        for row in range(at + 10):
            (found,) = store.search(X[row], 1, filter={"lang": ALIKE[row]["lang"]})
            assert (found.id, found.metadata) == (IDS[row], ALIKE[row])


@with_documents
def test_first_documents_of_many_threads() -> None:
    """None of them makes an index over that of another."""
    from densehash.integrations.documents import Documents

    store = Documents()
    together = Barrier(8)

    def put(at: int) -> None:
        together.wait()
        store.put([IDS[at]], X[at : at + 1], [TEXTS[at]], [ALIKE[at]])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(put, range(8)))
    assert store.matching(None) == sorted(IDS[:8])


@with_documents
def test_an_index_that_was_built_elsewhere_is_a_store(tmp_path: Path) -> None:
    from densehash.integrations.documents import Documents

    payload = [
        {"text": text, "metadata": json.dumps(row), "year": row["year"]}
        for text, row in zip(TEXTS, METADATA, strict=True)
    ]
    Index.build(X, ids=IDS, payload=payload, hasher="itq", n_bits=32, path=tmp_path / "built")
    store = Documents(path=tmp_path / "built")
    found = store.search(X[3], 1, filter={"year": {"$lte": 2003}})
    assert found[0].metadata == METADATA[3]


# --- packages that are not there ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("langchain", "langchain_core", "langchain"), ("llama_index", "llama_index", "llama-index")],
)
def test_a_missing_package_names_its_extra(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [*sys.modules]:
        if module.partition(".")[0] == package:
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, f"densehash.integrations.{name}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"pip install densehash\[{extra}\]"):
        importlib.import_module(f"densehash.integrations.{name}")


# --- scikit-learn -------------------------------------------------------------------------

PLACES = [
    "the harbour of a town by the sea",
    "a boat in the harbour",
    "boats on the sea",
    "a train to the mountains",
    "trains in mountains and snow",
    "snow on the mountains",
]


def retriever(**options: Any) -> Retriever:
    vectorizer = make_pipeline(TfidfVectorizer(), TruncatedSVD(4, random_state=0))
    return Retriever(vectorizer, random_state=0, **options)


def test_a_retriever_finds_what_exact_neighbours_are() -> None:
    ours = retriever(n_neighbors=3).fit(PLACES)
    asked = ["mountains of snow", "a harbour"]
    exact = NearestNeighbors(n_neighbors=3, metric="cosine").fit(ours.vectorizer_.transform(PLACES))
    distances, indices = exact.kneighbors(ours.vectorizer_.transform(asked))
    found = ours.kneighbors(asked)
    np.testing.assert_allclose(found[0], distances, atol=1e-6)
    np.testing.assert_array_equal(found[1], indices)
    assert ours.retrieve(asked) == [[PLACES[at] for at in row] for row in indices]
    assert ours.retrieve(asked[:1], 1) == [[PLACES[indices[0, 0]]]]
    assert clone(ours).get_params()["n_neighbors"] == 3
    assert not hasattr(ours.vectorizer.steps[0][1], "vocabulary_")  # the one given is not fitted


def test_neighbours_are_those_of_scikit_learn() -> None:
    exact = NearestNeighbors(n_neighbors=4).fit(X)
    ours = HashingNeighbors(n_neighbors=4, candidates=30, random_state=0).fit(X)
    for asked in (None, X[:7] + 0.1):
        for k in (None, 2):
            distances, indices = exact.kneighbors(asked, k)
            found = ours.kneighbors(asked, k)
            np.testing.assert_allclose(found[0], distances, atol=1e-3)
            np.testing.assert_array_equal(found[1], indices)
            np.testing.assert_array_equal(ours.kneighbors(asked, k, False), indices)
            for mode in ("connectivity", "distance"):
                graph = ours.kneighbors_graph(asked, k, mode)
                true = exact.kneighbors_graph(asked, k, mode)
                np.testing.assert_allclose(graph.toarray(), true.toarray(), atol=1e-3)
    for asked, k in ((None, 30), (X[:1], 31)):
        with pytest.raises(InputError, match="too many"):
            ours.kneighbors(asked, k)
    with pytest.raises(InputError, match="mode"):
        ours.kneighbors_graph(mode="weights")  # type: ignore[arg-type]


def test_the_example_of_the_docs() -> None:
    retrieve = run_example("scikit-learn")["retriever"].retrieve
    assert retrieve(["a boat on the sea"]) == [["boats on the sea", "a boat in the harbour"]]


# --- the example --------------------------------------------------------------------------


class CountsLetters:
    """In place of a model: what it says of a text is how often each letter is in it."""

    def encode(self, sentences: list[str]) -> Any:
        counts = [[text.count(chr(97 + at)) for at in range(26)] for text in sentences]
        return np.array(counts, np.float32)


@pytest.fixture
def sentence_search(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    path = ROOT / "examples" / "sentence_search.py"
    if not path.exists():
        pytest.skip("the examples are not here")
    monkeypatch.syspath_prepend(path.parent)
    yield importlib.import_module("sentence_search")
    sys.modules.pop("sentence_search")


@with_documents
def test_the_example_of_sentences(
    sentence_search: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    class SentenceTransformer(CountsLetters):
        def __init__(self, name: str) -> None:
            asked.append(name)

    package: Any = ModuleType("sentence_transformers")
    package.SentenceTransformer = SentenceTransformer
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    (tmp_path / "texts.txt").write_text("\n".join(PLACES) + "\n\n", encoding="utf-8")
    index, model = str(tmp_path / "texts.dh"), ["--model", "tiny"]
    sentence_search.main(["build", str(tmp_path / "texts.txt"), index, *model])
    assert "6 rows" in capsys.readouterr().out
    sentence_search.main(["search", index, PLACES[4], "-k", "2", *model])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0] == f"0.000  {PLACES[4]}"
    sentence_search.main(["search", index, PLACES[4], *model, "--where", "words < 5"])
    lines = capsys.readouterr().out.splitlines()
    assert {line.split("  ")[1] for line in lines} == {t for t in PLACES if len(t.split()) < 5}
    assert asked == ["tiny"] * 3
