"""LlamaIndex: nodes go in and come out, and its filters mean what they mean there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration_cases import run_example

pytest.importorskip("llama_index.core", reason="LlamaIndex needs the extra llama-index")
pytest.importorskip("pyarrow", reason="documents need the extra payload")

from llama_index.core import MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.schema import (
    ImageNode,
    IndexNode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from densehash import InputError
from densehash.integrations.llama_index import DensehashVectorStore

X = np.random.default_rng(0).standard_normal((24, 8)).astype(np.float32)


def nodes() -> list[TextNode]:
    found = []
    for at, vector in enumerate(X.tolist()):
        metadata: dict[str, Any] = {"lang": ["en", "de", ""][at % 3], "year": 2000 + at}
        metadata["tags"] = [*"abc"[: at % 4], "d"]
        metadata["deep"] = {"inside": [at]}
        if at % 5 == 4:
            del metadata["lang"], metadata["tags"]
        found.append(
            TextNode(
                id_=f"node {at}",
                text=f"text {at}",
                metadata=metadata,
                embedding=vector,
                relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"doc {at // 4}")},
            )
        )
    return found


def store(**options: Any) -> DensehashVectorStore:
    made = DensehashVectorStore(**options)
    assert made.add(nodes()) == [f"node {at}" for at in range(24)]
    return made


def same(found: Any, given: Any) -> bool:
    return bool(found.model_copy(update={"embedding": given.embedding}) == given)


@pytest.mark.parametrize("metric", ["cosine", "l2", "ip"])
def test_queries_find_the_nearest_nodes(metric: str) -> None:
    query = X[5] + 0.1
    length = np.linalg.norm(X, axis=1) * np.linalg.norm(query)
    true = {
        "cosine": X @ query / length,
        "ip": X @ query,
        "l2": 1 / (1 + np.linalg.norm(X - query, axis=1)),
    }[metric]
    asked = VectorStoreQuery(query_embedding=query.tolist(), similarity_top_k=6)
    found = store(metric=metric).query(asked)
    nearest = np.argsort(-true)[:6]
    assert found.ids == [f"node {at}" for at in nearest]
    np.testing.assert_allclose(found.similarities, true[nearest], atol=1e-5)
    assert all(same(a, nodes()[at]) for a, at in zip(found.nodes, nearest, strict=True))


def test_nodes_of_all_kinds_come_back() -> None:
    made = DensehashVectorStore()
    given = [
        TextNode(id_="t", text="ä", metadata={"a": 1}, excluded_embed_metadata_keys=["a"]),
        IndexNode(id_="i", text="b", index_id="other"),
        ImageNode(id_="p", text="c", image_path="photo.png"),
    ]
    for node in given:
        node.embedding = [1.0, 0.0, 0.0]
    made.add(given)
    found = made.get_nodes(["p", "t", "i", "nobody"])
    assert [type(node) for node in found] == [ImageNode, TextNode, IndexNode]
    assert all(same(a, b) for a, b in zip(found, (given[2], given[0], given[1]), strict=True))


LEAVES = [
    MetadataFilter(key="lang", value="en"),
    MetadataFilter(key="lang", value="en", operator=FilterOperator.NE),
    MetadataFilter(key="lang", value=["en", ""], operator=FilterOperator.IN),
    MetadataFilter(key="lang", value=["en", ""], operator=FilterOperator.NIN),
    MetadataFilter(key="lang", value=None, operator=FilterOperator.IS_EMPTY),
    MetadataFilter(key="year", value=2007, operator=FilterOperator.GT),
    MetadataFilter(key="year", value=2007.5, operator=FilterOperator.GTE),
    MetadataFilter(key="year", value=2007, operator=FilterOperator.LT),
    MetadataFilter(key="year", value=2007, operator=FilterOperator.LTE),
    MetadataFilter(key="year", value=None, operator=FilterOperator.IS_EMPTY),
    MetadataFilter(key="tags", value="b", operator=FilterOperator.CONTAINS),
    MetadataFilter(key="tags", value=["b", "c"], operator=FilterOperator.ANY),
    MetadataFilter(key="tags", value=["a", "b"], operator=FilterOperator.ALL),
    MetadataFilter(key="doc_id", value="doc 2"),
]


def test_filters_mean_what_they_mean_in_the_simple_store() -> None:
    ours, theirs = store(), SimpleVectorStore()
    theirs.add(nodes())
    chosen = [MetadataFilters(filters=[leaf]) for leaf in LEAVES]
    for condition in FilterCondition:
        for first, second in ((0, 5), (1, 11), (3, 4), (12, 7), (2, 13)):
            filters = [LEAVES[first], LEAVES[second]]
            chosen.append(MetadataFilters(filters=filters, condition=condition))
    for filters in chosen:
        asked = VectorStoreQuery(X[0].tolist(), similarity_top_k=24, filters=filters)
        assert ours.query(asked).ids == theirs.query(asked).ids, filters
        assert {node.node_id for node in ours.get_nodes(filters=filters)} == {
            *theirs.query(asked).ids
        }


def test_filters_inside_of_filters() -> None:
    inside = MetadataFilters(filters=[LEAVES[0], LEAVES[10]], condition=FilterCondition.OR)
    filters = MetadataFilters(filters=[inside, LEAVES[7]])
    found = {node.node_id for node in store().get_nodes(filters=filters)}
    true = {
        node.node_id
        for node in nodes()
        if node.metadata["year"] < 2007
        and (node.metadata.get("lang") == "en" or "b" in node.metadata.get("tags", []))
    }
    assert found == true


@pytest.mark.parametrize(
    "asked",
    [
        MetadataFilter(key="lang", value="e", operator=FilterOperator.TEXT_MATCH),
        MetadataFilter(key="lang", value="e", operator=FilterOperator.CONTAINS),
        MetadataFilter(key="tags", value=None, operator=FilterOperator.IS_EMPTY),
        MetadataFilter(key="nobody", value=1),
    ],
)
def test_what_cannot_be_asked_is_refused(asked: MetadataFilter) -> None:
    with pytest.raises(InputError):
        store().get_nodes(filters=MetadataFilters(filters=[asked]))


def test_queries_by_ids_and_other_modes() -> None:
    made = store()
    asked = VectorStoreQuery(X[0].tolist(), similarity_top_k=9, doc_ids=["doc 1", "doc 2"])
    assert sorted(made.query(asked).ids) == sorted(f"node {at}" for at in range(4, 12))
    asked.filters = MetadataFilters(filters=[LEAVES[8]])
    assert sorted(made.query(asked).ids) == [f"node {at}" for at in range(4, 8)]
    asked.node_ids = ["node 1", "node 6", "nobody"]
    assert made.query(asked).ids == ["node 6"]
    with pytest.raises(InputError, match="mode must be 'default', got 'mmr'"):
        made.query(VectorStoreQuery(X[0].tolist(), mode=VectorStoreQueryMode.MMR))
    with pytest.raises(InputError, match="query_embedding is needed"):
        made.query(VectorStoreQuery(query_str="words"))


def test_nodes_go() -> None:
    made = store(columns={"year": "int64"})
    made.delete("doc 1")
    assert len(made.client or []) == 20
    made.delete_nodes(["node 0", "nobody"])
    made.delete_nodes(filters=MetadataFilters(filters=[LEAVES[5]]))
    assert {node.node_id for node in made.get_nodes()} == {"node 1", "node 2", "node 3"}
    made.delete_nodes(["node 1", "node 2"], MetadataFilters(filters=[LEAVES[8]]))
    assert {node.node_id for node in made.get_nodes()} == {"node 3"}
    with pytest.raises(InputError, match="clear"):
        made.delete_nodes()
    made.clear()
    filters = MetadataFilters(filters=[LEAVES[0]])
    assert made.get_nodes() == made.get_nodes(filters=filters) == []
    made.delete("doc 5")


def test_an_index_of_llama_index_in_a_folder(tmp_path: Path) -> None:
    made = DensehashVectorStore(path=tmp_path / "store")
    context = StorageContext.from_defaults(vector_store=made)
    model = MockEmbedding(embed_dim=8)
    index = VectorStoreIndex(nodes(), storage_context=context, embed_model=model)
    assert len(index.as_retriever(similarity_top_k=5).retrieve("anything")) == 5
    index.delete_ref_doc("doc 3")
    made.persist(str(tmp_path / "copy"))
    context.persist(str(tmp_path / "all"))
    (kept,) = (each for each in (tmp_path / "all").iterdir() if each.is_dir())
    for name in ("store", "copy", kept):
        again = VectorStoreIndex.from_vector_store(
            DensehashVectorStore(path=tmp_path / name), embed_model=model
        )
        filters = MetadataFilters(filters=[LEAVES[5]])
        found = again.as_retriever(similarity_top_k=50, filters=filters).retrieve("anything")
        assert {each.node.metadata["year"] for each in found} == {
            year for year in range(2008, 2024) if not 2012 <= year < 2016
        }


def test_a_store_without_nodes() -> None:
    made = DensehashVectorStore()
    filters = MetadataFilters(filters=[LEAVES[0]])
    assert made.query(VectorStoreQuery([1.0, 0.0], filters=filters)).ids == []
    assert made.get_nodes(filters=filters) == made.get_nodes(["nobody"]) == []
    made.delete("nothing")
    made.clear()
    with pytest.raises(InputError, match="no documents yet"):
        made.persist("nowhere")


def test_the_example_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_example("LlamaIndex")
    assert len(names["found"]) == 3
    assert all(each.node.metadata["year"] >= 2020 for each in names["found"])
    assert len(names["again"].as_retriever(similarity_top_k=20).retrieve("all")) == 10
