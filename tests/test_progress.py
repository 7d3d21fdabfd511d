"""Bars: what they say, in a terminal and in a notebook, however seldom the work tells them."""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from densehash import progress


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: self.now))


def work(total: float, label: str = "") -> Any:
    return progress._Work(label, total, lately=30.0)


def test_a_step_says_how_much_of_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    doing = work(10.0)
    with doing.step("learning LSH", 2.0):
        clock.now += 20
        # Nothing was done before: there is no telling how long it takes.
        assert doing.told() == ("learning LSH: 0:20", 0.0, "0:20")
    with doing.step("learning Refined", 6.0):  # three times as dear: 60 seconds
        shares = []
        for share in ("0%", "25%", "50%", "75%"):
            told = doing.told()
            assert told.label == f"learning Refined: {share} of its time"
            shares.append(told.share)
            clock.now += 15
        assert shares == pytest.approx([0.2, 0.35, 0.5, 0.65])
        clock.now += 300
        late = doing.told()
        assert late.label == "learning Refined: longer than expected"
        assert 0.7 < late.share < 0.8  # the whole step is not done
    assert doing.told().share == pytest.approx(0.8)


def test_a_step_that_fails_is_not_done() -> None:
    doing = work(2.0)
    with pytest.raises(ValueError, match="wrong"), doing.step("one", 1.0):
        raise ValueError("wrong")
    assert doing._done == 0


def test_the_time_left_is_told_from_the_speed_of_late(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    doing = work(1000.0, "fetching")
    doing.advance(900)  # was there already
    for _ in range(400):
        clock.now += 0.25
        doing.advance(0.1)
        told = doing.told()
    assert told.share == pytest.approx(0.94)
    assert told.times == "2:30 left of 4:10"  # 60 at 0.4 a second, after 100 seconds


def test_work_of_unknown_length_says_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    doing = work(0, "fetching")
    clock.now += 3725
    doing.advance(5)
    assert doing.told() == ("fetching", None, "1:02:05")


def test_a_bar_lives_while_the_work_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", -1.0)
    monkeypatch.setattr(progress, "_EVERY", 0.001)
    looks: list[Any] = []
    seen = threading.Event()

    class Watched:
        def show(self, told: Any) -> None:
            looks.append(told)
            if len(looks) > 3:
                seen.set()

        def close(self) -> None:
            looks.append("closed")

    monkeypatch.setattr(progress, "_Terminal", Watched)
    with progress.bar("thinking", 2, shown=True) as advance:
        assert seen.wait(30)  # and nothing was advanced
        # One inside another is not shown: a terminal has room for one.
        with progress.bar("inside", 2, shown=True):
            pass
        advance(2)
    assert {told.label for told in looks[:-1]} == {"thinking"}
    assert looks[-1] == "closed"
    assert looks[-2].share == 1.0
    assert capsys.readouterr() == ("", "")


class Notebook:
    """IPython, as far as a bar sees it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kernel: object) -> None:
        self.shown: list[dict[str, str]] = []
        shell = SimpleNamespace(kernel=kernel) if kernel else SimpleNamespace()
        display = SimpleNamespace(display=self.display)
        root = SimpleNamespace(get_ipython=lambda: shell, display=display)
        monkeypatch.setitem(sys.modules, "IPython", root)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, shown: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        self.shown.append(shown)
        return SimpleNamespace(update=lambda shown, raw: self.shown.append(shown))


def test_a_notebook_shows_a_bar_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = Notebook(monkeypatch, kernel=object())
    monkeypatch.setattr(progress, "_PATIENCE", -1.0)
    assert progress.shows_bars(None)
    assert not progress.shows_bars(0)
    with progress.bar("checking <script>", 4, shown=True) as advance:
        advance(4)
    last = notebook.shown[-1]
    assert last["text/plain"].startswith("checking <script>, 100%")
    assert "checking &lt;script&gt; <progress" in last["text/html"]
    assert 'value="1.000"' in last["text/html"]
    assert capsys.readouterr() == ("", "")


def test_a_terminal_of_ipython_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    Notebook(monkeypatch, kernel=None)
    assert not progress.in_notebook()


def test_steps_are_shown_where_they_take_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", -1.0)
    with progress.steps(2.0, shown=True) as begin:
        with begin("the first", 1.0):
            pass
        with begin("the second", 1.0):
            time.sleep(0.01)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "the second" in printed.err
    assert "100%" in printed.err
