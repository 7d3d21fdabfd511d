"""What results look like in a notebook, and printed: short, whole, and nothing in them runs."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from densehash import DSH, LSH, Index, Refined
from densehash.index import Hits, Ranges
from densehash.index.tuning import Setting, Tuning
from densehash.notebook import curve, table

X = np.random.default_rng(0).standard_normal((400, 8), dtype=np.float32)
EVIL = '<script>alert("&")</script>'


class Cells(HTMLParser):
    """The texts of a page, and its tags, which must be closed in their order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.caption = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        elif self.open and self.open[-1] == "caption":
            self.caption += data


def test_hits_are_a_table() -> None:
    hits = Index.build(X, random_state=0).search(X[:2], k=3)
    page = Cells(hits._repr_html_())
    assert page.rows[0] == ["query", "rank", "id", "distance"]
    assert [row[:3] for row in page.rows[1:]] == [
        [str(query), str(rank), str(hits.ids[query, rank - 1])]
        for query in range(2)
        for rank in (1, 2, 3)
    ]
    assert page.caption == "Hits: 3 neighbours of 2 queries"


def test_hits_of_one_vector_and_missing_ones() -> None:
    index = Index.build(X[:3], n_bits=8)
    page = Cells(index.search(X[1], k=5)._repr_html_())
    assert page.rows[1][2] == "1"
    assert len(page.rows) == 1 + 3  # no row where there is no neighbour
    assert "of one query" in page.caption
    nothing = Hits(np.full((2, 2), -1), np.full((2, 2), np.inf))
    assert len(Cells(nothing._repr_html_()).rows) == 1
    assert len(Cells(Hits(np.empty((0, 4), int), np.empty((0, 4)))._repr_html_()).rows) == 1


def test_ids_and_payloads_are_text() -> None:
    pytest.importorskip("pyarrow", reason="payloads need the extra payload")
    names = [f"{EVIL}{number}" for number in range(20)]
    payload = [{EVIL: EVIL * 100, "year": 2000 + n} for n in range(20)]
    index = Index.build(X[:20], ids=names, payload=payload, n_bits=8)
    hits = index.search(X[:20], k=2)
    for shown in (hits, hits.first, index, index.search(X[:2], radius=99.0)):
        page = Cells(shown._repr_html_())
        assert "script" not in page.tags
    page = Cells(hits._repr_html_())
    assert page.rows[0] == ["query", "rank", "id", "distance", EVIL, "year"]
    assert page.rows[1][2] == names[0]
    assert len(page.rows[1][4]) == 80
    assert page.rows[1][5] == "2000"


def test_hits_of_shards_are_the_same_tables(tmp_path: Any) -> None:
    pytest.importorskip("distributed", reason="needs the extra dask")
    from densehash.distributed import PartialHits, PartialRanges, ShardedIndex

    index = Index.build(X, random_state=0)
    shards = ShardedIndex.build(X, tmp_path / "x.dh", random_state=0)
    for asked in ({"k": 3}, {"radius": 2.0}):
        ours, theirs = (
            Cells(one.search(X[:40], recall=1, **asked)._repr_html_()) for one in (shards, index)
        )
        assert ours.rows == theirs.rows
        assert ours.caption == f"Partial{theirs.caption}"
    one = Cells(shards.search(X[0], 3)._repr_html_())
    assert (len(one.rows), one.caption) == (4, "PartialHits: 3 neighbours of one query")
    hits = PartialHits(np.arange(3000).reshape(10, 300), np.zeros((10, 300)), (EVIL,))
    ranges = PartialRanges(np.array([0, 3000]), np.arange(3000), np.zeros(3000), (EVIL,))
    for found in (hits, ranges):
        page = Cells(found._repr_html_())
        assert (len(page.rows), "script" in page.tags) == (31, False)
        assert f"without {EVIL}, the first 30 rows" in page.caption
        assert len(repr(found)) < 1000


def test_what_is_large_is_shown_in_part() -> None:
    index = Index.build(X, random_state=0)
    hits, ranges = index.search(X, k=10), index.search(X, radius=99.0)
    for found in (hits, ranges):
        page = Cells(found._repr_html_())
        assert len(page.rows) == 1 + 30
        assert "the first 30 rows" in page.caption
        assert len(repr(found)) < 1000
    many = Cells(index.search(X[:2], k=100)._repr_html_())
    assert len(many.rows) == 1 + 30
    assert eval(repr(hits[0][0]), {"array": np.array}).tolist() == hits.ids[0].tolist()


def test_small_results_print_as_they_did() -> None:
    assert repr(Hits(np.array([[3]]), np.array([[0.5]]))) == (
        "Hits(ids=array([[3]]), distances=array([[0.5]]))"
    )
    assert repr(Ranges(np.array([0, 1]), np.array([3]), np.array([0.5]))) == (
        "Ranges(limits=array([0, 1]), ids=array([3]), distances=array([0.5]))"
    )


def test_an_index_is_a_table_of_facts(tmp_path: Any) -> None:
    (tmp_path / ("a" * 80)).mkdir()
    index = Index.build(X, random_state=0, path=tmp_path / ("a" * 80) / "<i>.dh")
    page = Cells(index._repr_html_())
    facts = dict(page.rows)
    assert page.caption == repr(index)
    assert facts["rows"] == "400"
    assert facts["path"].startswith("…")
    assert facts["path"].endswith("a/<i>.dh")  # of a long path, the end is what one looks for
    assert len(facts["path"]) == 80
    assert facts["metric"] == "l2"
    assert "i" not in page.tags
    assert {"rows", "removed"} <= set(dict(Cells(Index.build(X)._repr_html_()).rows))


@pytest.mark.parametrize("hasher", [LSH(8), LSH(8).fit(X), Refined(DSH(8))], ids=repr)
def test_hashers_keep_the_diagram_of_scikit_learn(hasher: Any) -> None:
    page = hasher._repr_html_()
    assert "sk-top-container" in page
    assert type(hasher).__name__ in page
    assert len(repr(hasher)) < 100


def tuning(*points: tuple[float, float]) -> Tuning:
    measured = tuple(Setting(None, 8, recall, speed) for recall, speed in points)
    return Tuning(*measured[0], measured=measured)


def test_a_tuning_is_a_table_and_a_curve() -> None:
    found = tuning((0.95, 12345.6), (0.9, 20000.0), (0.99, 3000.0))
    page = Cells(found._repr_html_())
    assert page.rows[0] == ["candidates", "probes", "recall", "queries_per_second"]
    assert page.rows[1] == ["", "8", "0.95", "12346"]
    assert page.tags.count("circle") == 3
    assert repr(found) == (
        "Tuning(candidates=None, probes=8, recall=0.950, queries_per_second=12346; 3 measured)"
    )
    assert "svg" not in Cells(tuning((0.95, 100.0))._repr_html_()).tags
    index = Index.build(X, random_state=0)
    Cells(index.tune(X[:50], k=3)._repr_html_())


@pytest.mark.parametrize(
    "points",
    [
        [(0.9, 20000.0), (0.95, 12000.0), (0.99, 3000.0)],
        [(1.0, 5.0), (1.0, 7.0)],  # one recall
        [(0.5, 0.001), (0.50001, 0.002)],
        [(0.1, 1e9), (1.0, 1.0)],
    ],
)
def test_a_curve_stays_in_its_frame_and_falls_where_the_numbers_do(points: Any) -> None:
    root = ET.fromstring(curve(points, chosen=points[0], x="recall <x>", y="speed"))
    circles = [
        (float(one.get("cx", "nan")), float(one.get("cy", "nan")), float(one.get("r", "nan")))
        for one in root.iter("{http://www.w3.org/2000/svg}circle")
    ]
    assert len(circles) == len(points)
    assert all(70 <= cx <= 400 and 30 <= cy <= 195 for cx, cy, _ in circles)
    assert sorted(cx for cx, *_ in circles) == [cx for cx, *_ in circles]  # recall goes right
    for (_, one), (_, cy, _) in zip(sorted(points), circles, strict=True):
        for (_, other), (_, below, _) in zip(sorted(points), circles, strict=True):
            assert one <= other or cy <= below  # the faster, the higher up
    assert [size for *_, size in circles].count(6) == 1
    texts = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "recall <x>" in texts
    assert 4 <= sum(bool(re.fullmatch(r"[\d.,e+-]+", text)) for text in texts) <= 16


def test_numbers_and_nothing_in_cells() -> None:
    page = Cells(table(["a"], [[1.23456789], [None], [10**9], [True], [np.float32(0.5)]]))
    assert [row[0] for row in page.rows[1:]] == ["1.2346", "", "1000000000", "True", "0.5"]
