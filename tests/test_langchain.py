"""LangChain's own tests of vector stores, and what they leave out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration_cases import run_example

pytest.importorskip("langchain_core", reason="LangChain needs the extra langchain")
pytest.importorskip("pyarrow", reason="documents need the extra payload")

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.indexing import InMemoryRecordManager, index

from densehash import InputError
from densehash.integrations.langchain import DensehashVectorStore

try:
    from langchain_tests.integration_tests import VectorStoreIntegrationTests
except ImportError:  # `make test-integrations` has it
    VectorStoreIntegrationTests = None

EMBEDDING = DeterministicFakeEmbedding(size=16)
DOCUMENTS = [
    Document(page_content=f"page {at}", metadata={"lang": ["en", "de"][at % 2], "year": 2000 + at})
    for at in range(40)
]

if VectorStoreIntegrationTests is not None:

    class TestInMemory(VectorStoreIntegrationTests):  # type: ignore[misc]
        @pytest.fixture
        def vectorstore(self) -> Any:
            return DensehashVectorStore(self.get_embeddings())

    class TestInAFolder(VectorStoreIntegrationTests):  # type: ignore[misc]
        @pytest.fixture
        def vectorstore(self, tmp_path: Path) -> Any:
            return DensehashVectorStore(self.get_embeddings(), path=tmp_path / "store")


def store(**options: Any) -> DensehashVectorStore:
    ids = [f"id {at}" for at in range(40)]
    made: DensehashVectorStore = DensehashVectorStore.from_documents(
        DOCUMENTS, EMBEDDING, ids=ids, **options
    )
    return made


def vectors() -> Any:
    return np.array(EMBEDDING.embed_documents([each.page_content for each in DOCUMENTS]))


def test_filters_find_what_they_say() -> None:
    found = store().similarity_search("page 3", k=40, filter={"lang": "de", "year": {"$lt": 2010}})
    assert found[0].page_content == "page 3"
    assert {each.metadata["year"] for each in found} == {2001, 2003, 2005, 2007, 2009}
    assert found == store().similarity_search("page 3", k=40, filter='lang = "de" and year < 2010')


@pytest.mark.parametrize("metric", ["cosine", "l2", "ip"])
def test_scores_are_distances_and_relevance_falls_with_them(metric: str) -> None:
    made = store(metric=metric)
    asked = EMBEDDING.embed_query("page 7")
    rows, query = vectors(), np.array(asked)
    if metric == "l2":
        true = np.linalg.norm(rows - query, axis=1)
    else:
        true = -rows @ query
        if metric == "cosine":
            true = 1 + true / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)
    found = made.similarity_search_with_score("page 7", k=5)
    assert found == made.similarity_search_with_score_by_vector(asked, k=5)
    nearest = np.argsort(true)[:5]
    assert [each.page_content for each, _ in found] == [f"page {at}" for at in nearest]
    np.testing.assert_allclose([score for _, score in found], true[nearest], atol=1e-4)
    relevance = made._select_relevance_score_fn()
    scores = [relevance(distance) for _, distance in found]
    assert scores == sorted(scores, reverse=True)


def test_diverse_documents_are_among_the_nearest() -> None:
    made = store()
    twice = [Document(page_content="page 3", metadata={"lang": "en"})] * 3
    made.add_documents(twice)
    near = made.similarity_search("page 3", k=4)
    assert [each.page_content for each in near] == ["page 3"] * 4
    diverse = made.max_marginal_relevance_search("page 3", k=4, fetch_k=10, lambda_mult=0.2)
    assert len({each.page_content for each in diverse}) == 4
    assert made.max_marginal_relevance_search("page 3", k=2, filter={"year": 2005})[0].id == "id 5"
    assert made.max_marginal_relevance_search("page 3", filter={"year": 1000}) == []
    assert DensehashVectorStore(EMBEDDING).max_marginal_relevance_search("page 3") == []


def test_a_retriever_and_relevance_scores() -> None:
    retriever = store().as_retriever(search_kwargs={"k": 2, "filter": {"lang": "en"}})
    assert [each.metadata["lang"] for each in retriever.invoke("page 4")] == ["en", "en"]
    scored = store().similarity_search_with_relevance_scores("page 4", k=3)
    assert scored[0][0].page_content == "page 4"
    assert scored[0][1] == pytest.approx(1, abs=1e-5)


def test_a_store_stays_in_its_folder(tmp_path: Path) -> None:
    made = store(path=tmp_path / "store")
    made.delete(["id 3", "nobody"])
    opened = DensehashVectorStore(EMBEDDING, path=tmp_path / "store")
    assert len(opened.index or []) == 39
    opened.save(tmp_path / "copy")
    copied = DensehashVectorStore(EMBEDDING, path=tmp_path / "copy")
    assert copied.get_by_ids(["id 3", "id 4"]) == made.get_by_ids(["id 4"])
    copied.delete()
    assert copied.similarity_search("page 4") == []


def test_indexing_of_langchain_adds_and_removes() -> None:
    records = InMemoryRecordManager(namespace="test")
    records.create_schema()
    made = DensehashVectorStore(EMBEDDING)
    for documents in (DOCUMENTS, DOCUMENTS[5:25]):
        index(
            documents, records, made, cleanup="full", batch_size=7, source_id_key="year",
            key_encoder="sha256",
        )  # fmt: skip
        assert len(made.index or []) == len(documents)
    found = made.similarity_search("page 9", k=50)
    assert {each.page_content for each in found} == {each.page_content for each in DOCUMENTS[5:25]}


def test_an_argument_with_a_mistake_is_an_error() -> None:
    mistaken: dict[str, Any] = {"filters": {"lang": "de"}}
    with pytest.raises(TypeError, match="filters"):
        store().similarity_search("page 3", **mistaken)


def test_new_ids_are_made_where_none_are_given() -> None:
    made = store()
    given = made.add_texts(["a", "b"], ids=["a", None])
    assert given[0] == "a"
    assert [each.page_content for each in made.get_by_ids(given)] == ["a", "b"]
    with pytest.raises(InputError, match="there are 2 texts, but 1 ids"):
        made.add_texts(["a", "b"], ids=["one"])
    with pytest.raises(InputError, match="there are 2 texts, but 1 metadatas"):
        made.add_texts(["a", "b"], [{}])


def test_the_example_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_example("LangChain")
    assert [each.id for each in names["found"]] == ["a", "c"]
    assert names["scored"][0][0].id == "a"
    assert {each.metadata["lang"] for each in names["retriever"].invoke("anything")} == {"en"}
    assert [each.id for each in names["again"].get_by_ids(["a", "b", "c"])] == ["a", "c"]
