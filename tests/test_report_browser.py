"""Reports in a real browser, without a network: what a reader sees and does."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from browser import Browser, find_browser
from report_cases import HOSTILE, METHODS, accuracy, page_saying, results, rich_page

from densehash.report import Figure, Page, PlaneFigure, Section, Series, Table, write_report
from densehash.report.charts import plain

pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
PROGRAM = find_browser()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium")

DRAWN = "document.documentElement.dataset.drawn !== undefined"
MARKS = "document.querySelectorAll('#{} .plot .mark-symbol.role-mark > path').length"


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    assert PROGRAM is not None
    with Browser(PROGRAM) as started:
        started.call(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=0,
            uploadThroughput=0,
        )
        yield started


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(rich_page(), path)
    return path


@pytest.fixture(scope="module")
def loaded(window: Browser, report: Path) -> Browser:
    show(window, report)
    return window


@pytest.fixture
def page(loaded: Browser, report: Path) -> Iterator[Browser]:
    """The rich page with everything shown; in the end, nothing may have gone wrong with it."""
    if loaded.evaluate("location.href") != report.as_uri():
        show(loaded, report)
    loaded.resize(1400, 900)
    loaded.prefer("light")
    loaded.evaluate(
        "delete document.documentElement.dataset.theme;"
        "document.querySelectorAll('[data-series][aria-pressed=false]').forEach((b) => b.click());"
        "document.getElementById('all').click(); scrollTo({top: 0, behavior: 'instant'})"
    )
    for name, figure in figures().items():
        loaded.wait(f"{MARKS.format(name)} === {count_points(figure)}")
    yield loaded
    nothing_is_wrong(loaded)


def show(window: Browser, path: Path) -> None:
    window.resize(1400, 900)
    window.prefer("light")
    window.open(path)
    window.wait(DRAWN)


def nothing_is_wrong(window: Browser) -> None:
    window.evaluate("1")  # brings what the browser has noted until now
    assert window.complaints() == []
    assert [url for url in window.requests() if not url.startswith(("file:", "data:"))] == []


def figures() -> dict[str, Figure | PlaneFigure]:
    items = [item for section in rich_page().sections for item in section.items]
    return {item.name: item for item in items if not isinstance(item, Table)}


def count_points(figure: Figure | PlaneFigure) -> int:
    if isinstance(figure, PlaneFigure):
        return len(figure.x)
    return sum(len(series.x) for series in figure.series)


def button(place: str, series: str) -> str:
    return f"{place} [data-series={json.dumps(series)}]"


def texts(page: Browser, selector: str) -> list[str]:
    found: list[str] = page.evaluate(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)"
    )
    return found


# --- figures ------------------------------------------------------------------------------


def test_every_figure_is_drawn_with_all_its_points(page: Browser) -> None:
    for name, figure in figures().items():
        assert page.evaluate(MARKS.format(name)) == count_points(figure)
        width, height = page.evaluate(
            f"(({{width, height}}) => [width, height])"
            f"(document.querySelector('#{name} .plot svg').getBoundingClientRect())"
        )
        assert width > 250
        assert height > 200
    lines = "document.querySelectorAll('#map-gist .plot .mark-line.role-mark > path').length"
    assert page.evaluate(lines) == len(METHODS)
    bands = "document.querySelectorAll('#map-gist .plot .mark-area.role-mark > path').length"
    assert page.evaluate(bands) == len(METHODS)


def test_nothing_drawn_leads_out_of_the_page(page: Browser) -> None:
    leading = "[...document.querySelectorAll('[href], [src]')].map((e) => e.getAttribute('href'))"
    assert all(link.startswith("#") for link in page.evaluate(leading))
    assert (
        page.evaluate("document.querySelectorAll('.vega-actions, iframe, img, object').length") == 0
    )


def test_the_page_holds_what_the_network_could_not_bring(page: Browser) -> None:
    assert page.evaluate("fetch('https://example.org').then(() => 'came', () => 'refused')") == (
        "refused"
    )
    assert "Content Security Policy" in " ".join(page.complaints())
    page.events.clear()


def test_the_pointer_asks_the_nearest_point(page: Browser) -> None:
    x, y = page.find("#map-sift .mark-symbol.role-mark > path:last-child")
    assert page.evaluate("document.getElementById('tip').hidden")
    page.point(x + 3, y - 3)
    page.wait("!document.getElementById('tip').hidden")
    figure = figures()["map-sift"]
    assert isinstance(figure, Figure)
    series = next(series for series in figure.series if series.name == "DSH")
    assert texts(page, "#tip b, #tip dt, #tip dd") == [
        "DSH",
        "code length in bits",
        "64",
        "mean average precision",
        f"{series.y[-1]:.4f} ± {series.spread[-1]:.2g}",
    ]
    faint = "document.querySelectorAll('#map-sift .mark-line.role-mark > path[opacity]').length"
    page.wait(f"{faint} >= {len(METHODS) - 1}")
    page.point(2, 2)
    page.wait("document.getElementById('tip').hidden")


def test_a_legend_hides_a_series_in_its_figure_alone(page: Browser) -> None:
    every = count_points(figures()["map-gist"])
    one = button("#map-gist", "DSH")
    page.click(one)
    page.wait(f"{MARKS.format('map-gist')} === {every - 6}")
    assert page.evaluate(f"document.querySelector({one!r}).ariaPressed") == "false"
    assert page.evaluate(MARKS.format("map-sift")) == count_points(figures()["map-sift"])
    page.click(one)
    page.wait(f"{MARKS.format('map-gist')} === {every}")
    assert page.evaluate(f"document.querySelector({one!r}).ariaPressed") == "true"


def test_a_legend_of_groups_hides_points(page: Browser) -> None:
    page.click(button("#plane", "01"))
    page.wait(f"{MARKS.format('plane')} === 120")
    assert page.evaluate(MARKS.format("plane-again")) == 160


def test_the_legend_of_the_page_hides_a_method_everywhere(page: Browser) -> None:
    page.click(button("#methods", "ITQ"))
    for name, figure in figures().items():
        mine = 0
        if isinstance(figure, Figure):
            mine = sum(len(series.x) for series in figure.series if series.name == "ITQ")
            pressed = f"document.querySelector({button('#' + name, 'ITQ')!r}).ariaPressed"
            assert page.evaluate(pressed) == "false"
        page.wait(f"{MARKS.format(name)} === {count_points(figure) - mine}")
    page.click(button("#methods", "ITQ"))
    for name, figure in figures().items():
        page.wait(f"{MARKS.format(name)} === {count_points(figure)}")


def test_all_methods_can_be_hidden_and_one_of_them_shown(page: Browser) -> None:
    page.click("#none")
    for name in ("map-gist", "fit-times"):
        page.wait(f"{MARKS.format(name)} === 0")
    page.click(button("#methods", "DSH"))
    page.wait(f"{MARKS.format('map-gist')} === 6")
    page.click("#all")
    for name, figure in figures().items():
        page.wait(f"{MARKS.format(name)} === {count_points(figure)}")


def test_what_is_left_fills_the_figure(page: Browser) -> None:
    highest = (
        "document.querySelector('#map-gist .plot svg').getBoundingClientRect().bottom - "
        "Math.min(...[...document.querySelectorAll('#map-gist .mark-symbol.role-mark > path')]"
        ".map((path) => path.getBoundingClientRect().top))"
    )
    before = page.evaluate(highest)
    page.click("#none")
    page.click(button("#map-gist", "LSH"))  # the lowest line
    page.wait(f"{MARKS.format('map-gist')} === 6")
    assert page.evaluate(highest) > 0.9 * before


def test_the_keyboard_reaches_a_legend(page: Browser) -> None:
    page.evaluate(f"document.querySelector({button('#methods', 'LSH')!r}).focus()")
    page.press("Tab")
    assert page.evaluate("document.activeElement.dataset.series") == "KLSH"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.press(" ", " ")
    page.wait(f"{MARKS.format('map-gist')} === {count_points(figures()['map-gist']) - 3}")


def test_each_figure_shows_its_numbers(page: Browser) -> None:
    assert texts(page, "#fit-times details table") == []
    page.click("#fit-times summary")
    page.wait("document.querySelector('#fit-times details table') !== null")
    assert texts(page, "#fit-times thead button") == ["method", "rows", "seconds", "±"]
    rows = count_points(figures()["fit-times"])
    assert len(texts(page, "#fit-times tbody tr")) == rows
    page.click("#fit-times thead th:nth-child(4) button")
    spreads = texts(page, "#fit-times tbody td:last-child")
    assert spreads[-3:] == ["–"] * 3
    assert spreads[-4] == "20"


def saved(page: Browser, name: str, kind: str) -> str:
    """The address that a click on a button to save leads to; nothing is put on the disk."""
    page.evaluate(
        "HTMLAnchorElement.prototype.click = function () {"
        " window.saved = [this.download, this.href]; }; window.saved = null"
    )
    page.click(f"#{name} [data-save={kind}]")
    page.wait("window.saved !== null")
    file, address = page.evaluate("window.saved")
    assert file == f"{name}.{kind}"
    return str(address)


def test_a_figure_can_be_saved(page: Browser) -> None:
    page.click(button("#map-gist", "SpH"))
    page.wait(f"{MARKS.format('map-gist')} === {count_points(figures()['map-gist']) - 6}")
    address = saved(page, "map-gist", "svg")
    kind, _, text = address.partition(",")
    assert kind == "data:image/svg+xml;charset=utf-8"
    root = ET.fromstring(unquote(text))
    said = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"GIST1M", "code length in bits"} <= set(said)
    assert set(METHODS) - set(said) == {"SpH"}
    assert "var(" not in unquote(text)
    kind, _, text = saved(page, "plane", "png").partition(",")
    assert kind == "data:image/png;base64"
    data = base64.b64decode(text)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert min(struct.unpack(">II", data[16:24])) > 500


# --- tables -------------------------------------------------------------------------------


def column(page: Browser, at: int) -> list[str]:
    return texts(page, f"#results tbody tr > :nth-child({at})")


def head(at: int) -> str:
    return f"#results thead th:nth-child({at})"


def sorted_cells(at: int, digits: int, *, reverse: bool) -> list[str]:
    numbers = [row[at] for row in results().rows if row[at] is not None]
    known = sorted((float(number) for number in numbers if number is not None), reverse=reverse)
    return [*(f"{number:,.{digits}f}" for number in known), *["–"] * (11 - len(known))]


@pytest.mark.parametrize(
    ("at", "digits", "first"), [(3, 3, "descending"), (4, 1, "ascending"), (5, 0, "ascending")]
)
def test_numbers_sort_as_numbers_both_ways(page: Browser, at: int, digits: int, first: str) -> None:
    for click in range(3):
        descending = (first == "descending") == (click % 2 == 0)
        page.click(f"{head(at)} button")
        assert column(page, at) == sorted_cells(at - 1, digits, reverse=descending)
        said = page.evaluate(f"document.querySelector('{head(at)}').ariaSort")
        assert said == ("descending" if descending else "ascending")
    assert texts(page, "#results [aria-sort]") == texts(page, head(at))


def test_text_sorts_and_rows_stay_whole(page: Browser) -> None:
    before = sorted(texts(page, "#results tbody tr"))
    page.evaluate(f"document.querySelector('{head(1)} button').focus()")
    page.press("Enter", "\r")
    assert column(page, 1) == sorted(METHODS, key=str.casefold)
    assert sorted(texts(page, "#results tbody tr")) == before
    assert sorted(texts(page, "#results strong")) == ["0.400", "0.400", "5.0"]


def test_numbers_stand_under_each_other(page: Browser) -> None:
    style = "getComputedStyle(document.querySelector('#results td.number'))"
    assert page.evaluate(f"{style}.textAlign") == "right"
    assert "tabular-nums" in page.evaluate(f"{style}.fontVariantNumeric")


# --- the page -----------------------------------------------------------------------------


def colours(page: Browser) -> list[str]:
    found: list[str] = page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,"
        " ...['.mark-line.role-mark > path', '.role-axis-label text', '.role-axis-grid line']"
        ".map((at) => document.querySelector('#map-gist ' + at))"
        ".map((e) => getComputedStyle(e)[e.tagName === 'text' ? 'fill' : 'stroke'])]"
    )
    return found


def test_the_theme_follows_the_reader_and_the_button(page: Browser) -> None:
    light = colours(page)
    assert light[0] == "rgb(255, 255, 255)"
    page.prefer("dark")
    dark = colours(page)
    assert dark[0] == "rgb(20, 22, 26)"
    assert all(one != other for one, other in zip(light, dark, strict=True))
    assert page.evaluate("document.getElementById('theme').ariaPressed") == "true"
    page.click("#theme")
    assert colours(page) == light
    page.click("#theme")
    assert colours(page) == dark
    page.prefer("light")
    assert colours(page) == dark, "what was chosen holds"


def test_paper_is_white(page: Browser) -> None:
    light = colours(page)
    page.click("#theme")
    assert colours(page) != light
    page.call("Emulation.setEmulatedMedia", media="print")
    assert colours(page) == light
    hidden = "getComputedStyle(document.querySelector('aside')).display"
    assert page.evaluate(hidden) == "none"
    page.call("Emulation.setEmulatedMedia", media="")


def test_no_width_makes_the_page_scroll_sideways(page: Browser) -> None:
    for width, across in ((320, 1), (390, 1), (768, 2), (1100, 2), (1900, 3)):
        page.resize(width, 844)
        page.wait(
            "[...document.querySelectorAll('.plot')].every((plot) =>"
            " plot.scrollWidth <= plot.clientWidth"
            " && plot.firstChild.clientWidth >= Math.min(plot.clientWidth, 480) - 1)"
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        columns = page.evaluate(
            "new Set(['map-gist', 'map-flickr', 'map-sift'].map((id) =>"
            " Math.round(document.getElementById(id).getBoundingClientRect().left))).size"
        )
        assert columns == across
        if width < 1000:
            box = "document.querySelector('#all-seeds .scroll')"
            assert page.evaluate(f"{box}.scrollWidth > {box}.clientWidth"), "but a wide table does"


def test_hostile_text_does_nothing(window: Browser, tmp_path: Path) -> None:
    sections = []
    for number, words in enumerate(HOSTILE):
        (section,) = page_saying(words).sections
        items = tuple(replace(item, name=f"{item.name}-{number}") for item in section.items)
        sections.append(replace(section, items=items))
    path = tmp_path / "report.html"
    every = " ".join(HOSTILE)
    write_report(Page(every, tuple(sections), every, dict.fromkeys(HOSTILE, every)), path)
    show(window, path)
    assert window.evaluate("document.title") == window.evaluate(
        "document.querySelector('h1').textContent.trim().replace(/[ \\n]+/g, ' ')"
    )
    assert window.evaluate("document.querySelectorAll('img, iframe, textarea').length") == 0
    assert window.evaluate("document.querySelectorAll('script').length") == 3
    for number, words in enumerate(HOSTILE):
        at = f"line-{number}"
        said = f"document.querySelector('#{at} [data-series]').dataset.series"
        assert window.evaluate(said) == plain(words)
        assert window.evaluate(MARKS.format(at)) == 2
        window.click(f"#{at} [data-series]")
        window.wait(f"{MARKS.format(at)} === 0")
        window.click(f"#methods .legend > :nth-child({number + 1})")
        window.click(f"#methods .legend > :nth-child({number + 1})")
        window.wait(f"{MARKS.format(at)} === 2")
        window.click(f"#{at} summary")
        window.wait(f"document.querySelector('#{at} tbody') !== null")
        assert texts(window, f"#{at} tbody th") == [plain(words)] * 2
        ET.fromstring(unquote(saved(window, at, "svg").partition(",")[2]))
        window.point(*window.find(f"#{at} .mark-symbol.role-mark > path"))
        window.wait("!document.getElementById('tip').hidden")
        assert texts(window, "#tip b") == [plain(words)]
    assert window.evaluate("document.title") != "taken"
    nothing_is_wrong(window)


def test_many_figures_are_all_drawn(window: Browser, tmp_path: Path) -> None:
    many = [accuracy(f"figure-{number}", "Many", number) for number in range(6)]
    many.append(Figure("flat", "A", "x", "y", (Series("DSH", (1, 2), (0, 0)),)))
    many.append(Figure("one", "A", "x", "y", (Series("DSH", (1,), (5,)),), log_x=True, log_y=True))
    path = tmp_path / "report.html"
    write_report(Page("Many", (Section("All", tuple(many)),)), path)
    show(window, path)
    for figure in many:
        assert window.evaluate(MARKS.format(figure.name)) == count_points(figure)
    assert "NaN" not in window.evaluate("document.querySelector('main').innerHTML")
    nothing_is_wrong(window)


def test_the_browser_of_these_tests_notes_what_goes_wrong(window: Browser, tmp_path: Path) -> None:
    path = tmp_path / "wrong.html"
    path.write_text("<img src='https://example.org/x.png'><script>console.error('e'); f()</script>")
    window.open(path)
    window.wait("document.readyState === 'complete'")
    said = " ".join(window.complaints())
    assert "ReferenceError" in said
    assert "ERR_INTERNET_DISCONNECTED" in said
    assert "https://example.org/x.png" in window.requests()
