"""Reports without a browser: what is written, what is refused, and that text stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from report_cases import (
    HOSTILE,
    METHODS,
    accuracy,
    page_saying,
    plane,
    results,
    rich_page,
    times,
)

from densehash.errors import FileError, InputError, MissingExtraError
from densehash.report import (
    Column,
    Figure,
    Page,
    PlaneFigure,
    Section,
    Series,
    Table,
    write_figures,
    write_report,
)
from densehash.report.charts import chart_of, plain
from densehash.report.check import check_page
from densehash.report.html import html_of, names_of
from densehash.report.looks import ASYMMETRIC, KNOWN, THEMES, looks_of

LIBRARY = "window.vegaEmbed = null; // </script><!-- a library may hold these"


class Document(HTMLParser):
    """The elements of a document in order, and what is in each script and table."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text_in(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


@pytest.fixture(scope="module")
def text() -> str:
    return html_of(rich_page(), LIBRARY)


@pytest.fixture(scope="module")
def document(text: str) -> Document:
    return Document(text)


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def page_of(*items: Figure | PlaneFigure | Table) -> Page:
    return Page("Results", (Section("All", items),))


def figures_of(page: Page) -> Iterator[Figure | PlaneFigure]:
    for section in page.sections:
        yield from (item for item in section.items if not isinstance(item, Table))


# --- structure ----------------------------------------------------------------------------


def test_headings_are_in_order(document: Document) -> None:
    levels = [int(tag[1]) for tag, _ in document.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert document.of("html") == [{"lang": "en"}]


def test_every_figure_and_table_has_a_title_and_the_caption_that_it_was_given(
    document: Document,
) -> None:
    assert len(document.of("figure")) == 10
    ids = [attributes["id"] for _, attributes in document.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for figure in document.of("figure"):
        assert figure["aria-labelledby"] in ids
    wanted = [item.caption for section in rich_page().sections for item in section.items]
    assert document.text_in("figcaption") == [caption for caption in wanted if caption]


def test_links_lead_to_places_in_the_page(document: Document) -> None:
    ids = {attributes.get("id") for _, attributes in document.elements}
    links = [attributes["href"] or "" for attributes in document.of("a")]
    assert len(links) == 6
    assert all(link[:1] == "#" and link[1:] in ids for link in links)


def test_no_address_leads_out_of_the_page(text: str, document: Document) -> None:
    assert not re.findall(r"(?:https?:)?//(?!www\.w3\.org/)[a-z0-9-]+\.[a-z]", text)
    assert not re.findall(r"@import|url\(|\bsrc=|\bsrcset=|\bping=|<link|<base|<iframe", text)
    for _, attributes in document.elements:
        assert not {"src", "action", "formaction", "data", "poster", "background"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]


def test_the_policy_allows_the_scripts_of_the_page_and_nothing_else(text: str) -> None:
    policy = Document(text).of("meta")[1]["content"] or ""
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data: blob:"
    assert set(rules) == {
        *("default-src", "script-src", "style-src", "img-src", "base-uri", "form-action")
    }
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert len(scripts) == 2
    assert rules["script-src"].split() == [f"'sha256-{each}'" for each in hashes]


def test_a_library_cannot_end_its_script(text: str) -> None:
    assert LIBRARY not in text
    assert LIBRARY.replace("</", "<\\/").replace("<!", "<\\!") in text


def test_the_facts_are_at_the_end(document: Document) -> None:
    facts = rich_page().facts
    said = [text for text in document.text_in("td") if text in facts.values()]
    assert said == list(facts.values())


def test_the_same_page_is_the_same_text(text: str) -> None:
    assert html_of(rich_page(), LIBRARY) == text


def test_an_empty_page_can_be_written() -> None:
    assert "<h1>Empty</h1>" in html_of(Page("Empty", ()), LIBRARY)
    assert "<h2" in html_of(Page("Empty", (Section("Nothing", ()),)), LIBRARY)


# --- text stays text ----------------------------------------------------------------------


def shape_of(document: Document) -> list[tuple[str, list[str]]]:
    """Its elements and their attributes, but for paragraphs: an empty line begins a new one."""
    return [(tag, sorted(attributes)) for tag, attributes in document.elements if tag != "p"]


def shape_of_words(words: str) -> list[Any]:
    """What a page of harmless words has, as many of them: long cells are broken into lines."""
    return shape_of(Document(html_of(page_saying("w" * len(words)), LIBRARY)))


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_text_adds_no_element_and_no_attribute(words: str) -> None:
    text = html_of(page_saying(words), LIBRARY)
    document = Document(text)
    assert shape_of(document) == shape_of_words(words)
    assert document.text_in("h1") == [plain(words)]
    assert document.text_in("title") == [plain(words)]
    text.encode("utf-8")
    assert data_of(text)["charts"][0]["spec"]["data"]["values"][0]["series"] == plain(words)


@given(st.text(st.characters(), min_size=1).filter(lambda text: text.strip(" \t\n\r\x0c")))
@settings(max_examples=60, deadline=None)
def test_no_text_at_all_changes_the_document(words: str) -> None:
    assume(
        plain(words).removesuffix(ASYMMETRIC) not in KNOWN
    )  # names of methods have lines of their own
    assert shape_of(Document(html_of(page_saying(words), LIBRARY))) == shape_of_words(words)


def test_the_data_hold_no_sign_that_ends_a_script() -> None:
    for words in HOSTILE:
        found = re.search(r'id="data">(.*?)</script>', html_of(page_saying(words), LIBRARY), re.S)
        assert found
        assert not set("<>&\u2028\u2029") & set(found[1])


def test_characters_that_no_document_may_hold_are_replaced() -> None:
    assert plain("a\x00\x1f\ud800b\tc\nd") == "a\ufffd\ufffd\ufffdb\tc\nd"
    assert plain("a\r\nb\u2028c") == "a\nb\nc"
    assert plain("ä ± 漢 🙂") == "ä ± 漢 🙂"


# --- data ---------------------------------------------------------------------------------


def test_charts_hold_the_numbers_of_the_figures(text: str) -> None:
    charts = {chart["name"]: chart["spec"] for chart in data_of(text)["charts"]}
    figures = list(figures_of(rich_page()))
    assert list(charts) == [figure.name for figure in figures]
    for figure in figures:
        rows = charts[figure.name]["data"]["values"]
        if isinstance(figure, PlaneFigure):
            held = [(row["x"], row["y"], row["series"]) for row in rows]
            assert held == list(zip(figure.x, figure.y, figure.groups, strict=True))
            lines = [
                tuple(row.values()) for row in charts[figure.name]["layer"][1]["data"]["values"]
            ]
            assert lines == list(figure.lines)
            continue
        for series in figure.series:
            mine = [row for row in rows if row["series"] == series.name]
            assert tuple(row["x"] for row in mine) == series.x
            assert tuple(row["y"] for row in mine) == series.y
            assert tuple(row["spread"] for row in mine) == (series.spread or (None,) * len(mine))
            for row in mine:
                if row["spread"] is None:
                    assert row["low"] is row["high"] is None
                else:
                    assert row["high"] == row["y"] + row["spread"]
        assert len({row["key"] for row in rows}) == len(rows)


def chart(figure: Figure | PlaneFigure) -> dict[str, Any]:
    looks = looks_of(names_of(figure))
    colours = {name: look.light for name, look in looks.items()}
    return chart_of(figure, looks, colours, THEMES["light"])


def test_points_are_drawn_along_the_axis_whatever_their_order() -> None:
    figure = Figure("a", "A", "x", "y", (Series("DSH", (3, 1, 2), (30, 10, 20), (None, 1, 2)),))
    rows = chart(figure)["data"]["values"]
    assert [(row["x"], row["y"], row["spread"]) for row in rows] == [
        (1, 10, 1),
        (2, 20, 2),
        (3, 30, None),
    ]


def test_a_logarithmic_axis_stays_above_zero() -> None:
    spec = chart(times())
    rows = spec["data"]["values"]
    assert min(row["low"] for row in rows if row["low"] is not None) > 0
    reach = next(each["value"] for each in spec["params"] if each["name"] == "reach")
    assert 0 < reach[0] <= min(row["y"] for row in rows)
    assert reach[1] == 9 + 20


def test_a_spread_without_neighbours_gets_a_bar() -> None:
    rows = chart(times())["data"]["values"]
    alone = {(row["series"], row["x"]) for row in rows if row["alone"]}
    assert alone == {("faiss PQ", 100_000), ("my own", 10_000)}


def test_the_method_of_the_paper_is_drawn_above_the_others() -> None:
    rows = chart(accuracy("a", "A", 0))["data"]["values"]
    drawn = list(dict.fromkeys(row["series"] for row in rows))
    assert set(drawn[-3:]) == {"Refined(ITQ)", "Refined(DSH)", "DSH"}


def test_a_plane_is_square() -> None:
    spec = chart(plane())
    encoding = spec["layer"][0]["encoding"]
    (x0, x1), (y0, y1) = (encoding[axis]["scale"]["domain"] for axis in "xy")
    assert x1 - x0 == pytest.approx(y1 - y0)
    assert spec["width"] == spec["height"]
    assert x0 < min(plane().x) < max(plane().x) < x1
    assert y0 < min(plane().y) < max(plane().y) < y1


def test_many_points_keep_their_lines_in_sight() -> None:
    x = tuple(range(100))
    figure = Figure("a", "A", "x", "y", tuple(Series(name, x, x) for name in ("DSH", "ITQ")))
    rows = chart(figure)["data"]["values"]
    marks = [
        {row["x"] for row in rows if row["series"] == name and not row["unmarked"]}
        for name in ("DSH", "ITQ")
    ]
    assert all(8 <= len(each) <= 10 for each in marks)
    assert not marks[0] & marks[1]
    assert not any(row["unmarked"] for row in chart(accuracy("a", "A", 0))["data"]["values"])


@pytest.mark.parametrize("number", [0.0, 3.0, -2.0])
def test_an_axis_is_never_without_length(number: float) -> None:
    spec = chart(Figure("a", "A", "x", "y", (Series("DSH", (1.0,), (number,)),)))
    low, high = next(each["value"] for each in spec["params"] if each["name"] == "reach")
    assert low < number < high


def test_one_point_is_enough() -> None:
    page = page_of(
        Figure("a", "A", "x", "y", (Series("DSH", (1,), (0,)),)),
        PlaneFigure("b", "B", (1.0,), (1.0,), ("0",)),
    )
    check_page(page)
    assert len(data_of(html_of(page, LIBRARY))["charts"]) == 2


def test_numbers_of_numpy_are_numbers() -> None:
    x, y = np.arange(1, 4, dtype=np.int64), np.ones(3, dtype=np.float32)
    rows: Any = ((np.float32(1.5),), (np.int16(2),))
    page = page_of(
        Figure("a", "A", "x", "y", (Series("DSH", tuple(x), tuple(y)),)),
        Table("t", "T", (Column("a", 1),), rows),
    )
    check_page(page)
    text = html_of(page, LIBRARY)
    assert [row["x"] for row in data_of(text)["charts"][0]["spec"]["data"]["values"]] == [1, 2, 3]
    assert 'data-value="2.0"' in text


# --- tables -------------------------------------------------------------------------------


def cells_of(table: Table) -> list[list[str]]:
    text = html_of(page_of(table), LIBRARY)
    body = re.search(r"<tbody>(.*?)</tbody>", text, re.S)
    assert body
    rows = re.findall(r"<tr>(.*?)</tr>", body[1], re.S)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_numbers_are_shown_with_their_digits_and_the_best_are_marked() -> None:
    table = Table(
        "t",
        "T",
        (Column("n"), Column("most", 2, "most"), Column("least", 0, "least"), Column("none", 1)),
        (
            ("a", 0.504, 12345.6, -0.04),
            ("b", 0.496, -2.0, 9.0),
            ("c", None, -1.9, None),
            ("d", 0.3, 7.0, 1.0),
        ),
    )
    assert cells_of(table) == [
        ["a", "<strong>0.50</strong>", "12,346", "0.0"],
        ["b", "<strong>0.50</strong>", "<strong>−2</strong>", "9.0"],
        ["c", "–", "<strong>−2</strong>", "–"],
        ["d", "0.30", "7", "1.0"],
    ]


def test_a_column_of_nothing_has_no_best() -> None:
    table = Table("t", "T", (Column("a", 1, "most"),), ((None,), (None,)))
    assert cells_of(table) == [["–"], ["–"]]


def test_a_method_has_its_mark_in_tables() -> None:
    page = page_of(accuracy("a", "A", 0), results())
    text = html_of(page, LIBRARY)
    row = re.search(r'<th scope="row">(<svg.*?</svg>)DSH</th>', text)
    assert row
    assert KNOWN["DSH"].mark in row[1]


# --- looks --------------------------------------------------------------------------------

# How a colour-blind eye sees linear light: Machado, Oliveira and Fernandes, A physiologically-based
# model for simulation of color vision deficiency, 2009, at full severity.
EYES = {
    "all cones": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}


def light_of(colour: str) -> NDArray[np.float64]:
    """Linear light of a colour, (3,)."""
    value = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    light: NDArray[np.float64] = np.where(
        value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4
    )
    return light


def lab_of(light: NDArray[np.float64]) -> NDArray[np.float64]:
    """Oklab (Ottosson, 2020) of linear light: distances there are as the eye sees them."""
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    mixed = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    lab: NDArray[np.float64] = mixed @ np.cbrt(cones @ light.clip(0, 1))
    return lab


def contrast(one: str, other: str) -> float:
    """Of WCAG 2, from 1 to 21."""
    weights = np.array([0.2126, 0.7152, 0.0722])
    dim, bright = sorted(float(weights @ light_of(colour)) for colour in (one, other))
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_stand_out_from_the_page(theme: str) -> None:
    colours = THEMES[theme]
    for name, look in KNOWN.items():
        assert contrast(getattr(look, theme), colours["paper"]) >= 3, name
    for name in ("ink", "muted", "accent"):
        for ground in ("paper", "panel"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    assert contrast(colours["ink"], colours["mark"]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("eye", EYES)
def test_no_two_colours_look_alike_to_any_eye(eye: str, theme: str) -> None:
    seen = {
        name: lab_of(EYES[eye] @ light_of(getattr(look, theme))) for name, look in KNOWN.items()
    }
    for one, other in combinations(KNOWN, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 0.055, (one, other)


def test_nothing_hangs_on_colour_alone() -> None:
    assert len({look.mark for look in KNOWN.values()}) == len(KNOWN)
    assert len({(look.dash, look.width) for look in KNOWN.values()}) == len(KNOWN)


def test_a_known_method_looks_the_same_on_every_page() -> None:
    names = [*KNOWN, *(name + ASYMMETRIC for name in KNOWN)]
    alone = {name: looks_of([name])[name] for name in names}
    assert looks_of(names) == alone
    assert looks_of(["mine", *reversed(names), "yours"]) | alone == looks_of(
        ["mine", *reversed(names), "yours"]
    )
    assert len(set(alone.values())) == len(names)
    for name in KNOWN:
        assert alone[name + ASYMMETRIC].hollow
        assert alone[name + ASYMMETRIC].mark == alone[name].mark


@pytest.mark.parametrize("known", [(), ("DSH", "ITQ"), METHODS])
def test_other_names_look_like_no_method_of_the_page(known: tuple[str, ...]) -> None:
    names = [*known, *(f"other {number}" for number in range(6))]
    looks = looks_of(names)
    signs = [(look.light, look.mark, look.hollow) for look in looks.values()]
    assert list(looks) == names
    assert len(set(signs)) == len(names)


def test_any_number_of_names_has_looks() -> None:
    assert len(looks_of(f"other {number}" for number in range(100))) == 100
    every = [*KNOWN, *(name + ASYMMETRIC for name in KNOWN), "one more"]
    assert len(looks_of(every)) == len(every)


# --- what is refused ----------------------------------------------------------------------


def line(**changes: Any) -> Figure:
    series = Series("DSH", (1.0, 2.0), (3.0, 4.0))
    fields = {
        name: changes.pop(name) for name in ("name", "series", "log_x", "log_y") if name in changes
    }
    return replace(Figure("a", "A", "x", "y", (replace(series, **changes),)), **fields)


def dots(**changes: Any) -> PlaneFigure:
    return replace(PlaneFigure("a", "A", (1.0, 2.0), (3.0, 4.0), ("0", "1")), **changes)


def table(*rows: tuple[Any, ...], best: str = "") -> Table:
    return Table("a", "A", (Column("n"), Column("v", 1, best)), rows)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([line(), line()], "two figures or tables of the page are named 'a'"),
        ([line(), table()], "two figures or tables of the page are named 'a'"),
        ([line(name="A b")], "lower-case letters and digits with hyphens between, got 'A b'"),
        ([line(name="../a")], "lower-case letters and digits"),
        ([line(name="a\n")], "lower-case letters and digits"),
        ([line(name="")], "lower-case letters and digits"),
        ([line(x=(1.0, NAN))], "x of series 'DSH' of figure 'a' must be finite numbers, got nan"),
        ([line(y=(1.0, INF))], "y of series 'DSH' of figure 'a' must be finite numbers, got inf"),
        ([line(y=(1.0, None))], "y of series .* must be finite numbers, got None"),
        ([line(y=(1.0, True))], "y of series .* must be finite numbers, got True"),
        ([line(y=(1.0, "2"))], "y of series .* must be finite numbers, got '2'"),
        ([line(y=(1.0,))], "y of series .* must be as many as x, 2, got 1"),
        ([line(spread=(1.0,))], "spread of series .* must be as many as x, 2, got 1"),
        ([line(spread=(1.0, NAN))], "spread of series .* must be finite numbers, got nan"),
        ([line(spread=(None, -1.0))], "spread of series .* must not be negative, got -1.0"),
        ([line(x=(), y=())], "must have at least 1 point, got none"),
        ([line(series=())], "figure 'a' must have at least 1 series, got none"),
        (
            [line(series=(Series("b", (1,), (1,)), Series("b", (2,), (2,))))],
            "no two series of figure 'a' may have one name",
        ),
        ([line(x=(0.0, 1.0), log_x=True)], "x .* must be positive on a logarithmic axis, got 0.0"),
        ([line(y=(1.0, -1.0), log_y=True)], "y .* must be positive on a logarithmic axis"),
        ([dots(x=(1.0, NAN))], "x of figure 'a' must be finite numbers, got nan"),
        ([dots(y=(1.0,))], "y of figure 'a' must be as many as x, 2, got 1"),
        ([dots(groups=("0",))], "groups of figure 'a' must be as many as x, 2, got 1"),
        ([dots(lines=((0.0, 1.0, INF, 2.0),))], "lines of figure 'a' must be finite numbers"),
        ([dots(lines=((0.0, 1.0, 2.0),))], "a line of figure 'a' must be as many as"),
        ([dots(x=(), y=(), groups=())], "figure 'a' must have at least 1 point, got none"),
        ([table(("a", NAN))], "column 'v' of table 'a' must be finite numbers, got nan"),
        ([table(("a", True))], "column 'v' of table 'a' must be finite numbers, got True"),
        ([table(("a",))], "a row of table 'a' must be as many as columns, 2, got 1"),
        ([table(best="max")], "best of column 'v' of table 'a' must be 'most', 'least' or ''"),
        ([Table("a", "A", (), ())], "table 'a' must have at least 1 column, got none"),
    ],
)
@pytest.mark.parametrize("write", [write_report, write_figures])
def test_a_page_that_cannot_be_drawn_is_refused_and_nothing_is_written(
    items: list[Any], message: str, write: Callable[[Page, Path], object], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        write(page_of(*items), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# --- files --------------------------------------------------------------------------------


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("densehash.report.write._vega", lambda: None)
    monkeypatch.setattr("densehash.report.write._library", lambda _: LIBRARY)


@pytest.mark.usefixtures("without_library")
def test_a_report_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("before")
    write_report(rich_page(), str(path))
    assert path.read_text(encoding="utf-8") == html_of(rich_page(), LIBRARY)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.usefixtures("without_library")
@pytest.mark.parametrize(
    ("raised", "expected"), [(OSError(28, "No space left"), FileError), (KeyboardInterrupt, None)]
)
def test_a_report_that_cannot_be_finished_leaves_the_one_before(
    raised: BaseException, expected: type[BaseException] | None, monkeypatch: Any, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text("before")

    def fail(_: int) -> None:
        raise raised

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(expected or KeyboardInterrupt) as caught:
        write_report(rich_page(), path)
    if expected:
        assert "report.html cannot be written: No space left" in str(caught.value)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.usefixtures("without_library")
def test_a_report_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be written: No such file"):
        write_report(rich_page(), tmp_path / "missing" / "report.html")
    with pytest.raises(FileError, match="is a directory"):
        write_report(rich_page(), tmp_path)


def test_figures_need_a_folder_that_can_be_made(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be made"):
        write_figures(rich_page(), tmp_path / "file" / "figures")


@pytest.mark.parametrize("write", [write_report, write_figures])
def test_without_the_extra_the_error_names_it(
    write: Callable[[Page, Path], object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MissingExtraError, match=r"pip install densehash\[report\]"):
        write(rich_page(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_figures_are_written_as_svg_and_png(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
    log = times()
    page = page_of(accuracy("map", "MAP", 0), log, plane(), results())
    files = write_figures(page, tmp_path / "new" / "figures")
    names = [f"{name}.{kind}" for name in ("map", "fit-times", "plane") for kind in ("svg", "png")]
    assert [file.name for file in files] == names
    assert sorted(file.name for file in (tmp_path / "new" / "figures").iterdir()) == sorted(names)
    for file, figure in zip(files[::2], figures_of(page), strict=True):
        root = ET.fromstring(file.read_text(encoding="utf-8"))
        said = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        assert figure.title in said
        assert set(names_of(figure)) <= set(said)
        marks = file.read_text(encoding="utf-8").count('aria-roledescription="point"')
        points = chart(figure)["data"]["values"]
        assert marks == len(points) + len(names_of(figure)), "those of the legend as well"
        assert "var(" not in file.read_text(encoding="utf-8")
    for file in files[1::2]:
        data = file.read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", data[16:24])
        assert 700 < width < 2400
        assert 500 < height < 1400


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_text_stays_text_in_pictures(words: str, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
    page = page_saying(words)
    for file in write_figures(page, tmp_path)[::2]:
        root = ET.fromstring(file.read_text(encoding="utf-8"))
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert tags <= {"svg", "g", "path", "line", "text", "rect", "defs", "clipPath"}
        assert not [name for element in root.iter() for name in element.attrib if name[:2] == "on"]
