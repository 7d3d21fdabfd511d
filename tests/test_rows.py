"""Rows in blocks, the tree that combines answers, threads, and bars."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import RandomState
from numpy.typing import NDArray
from row_cases import InChunks
from threadpoolctl import threadpool_info, threadpool_limits

from densehash import mapped, parallel, progress
from densehash.errors import InputError
from densehash.mapped import unmapped
from densehash.rows import Rows, numerics, tree_reduce
from densehash.rows import local as rows
from densehash.store import Store


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MOST_BLOCK_ROWS", 10)


def blas_counts() -> list[int]:
    """Of numpy and scipy; faiss and torch, which other tests import, bring their own."""
    return [
        info["num_threads"]
        for info in threadpool_info()
        if info["user_api"] == "blas"
        and not any(other in info["filepath"] for other in ("faiss", "torch"))
    ]


def number(n: int, d: int = 2) -> NDArray[np.float64]:
    """Rows that hold their own position."""
    return np.repeat(np.arange(float(n))[:, np.newaxis], d, axis=1)


# --- reading ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "block_type"),
    [
        *((dtype, np.float32) for dtype in (bool, np.int8, np.uint8, np.int16, np.uint16)),
        *((dtype, np.float32) for dtype in (np.float16, np.float32, ">f4")),
        *((dtype, np.float64) for dtype in (np.int32, np.uint32, np.int64, np.uint64)),
        *((dtype, np.float64) for dtype in (np.float64, ">f8", np.longdouble)),
    ],
)
@pytest.mark.usefixtures("small_blocks")
def test_blocks_hold_every_row_once_in_order(dtype: Any, block_type: type[np.floating]) -> None:
    array = np.random.default_rng(0).integers(0, 2, (47, 3)).astype(dtype)
    for same in (array, np.asfortranarray(array), np.repeat(array, 2, axis=1)[:, ::2]):
        every = Rows(same)
        assert (every.n_rows, every.n_features, every.dtype) == (47, 3, block_type)
        blocks: dict[int, NDArray[Any]] = {}
        every.for_each(lambda block, start: blocks.update({start: block}))  # noqa: B023
        assert sorted(blocks) == [0, 10, 20, 30, 40]
        for block in blocks.values():
            assert block.dtype == block_type
            assert block.flags.c_contiguous
            assert block.dtype.isnative
        np.testing.assert_array_equal(np.concatenate([blocks[at] for at in sorted(blocks)]), array)


@pytest.mark.parametrize("width", [1, 5, 50])
def test_wide_answers_make_short_blocks(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(rows, "_BLOCK_NUMBERS", 200)
    monkeypatch.setattr(rows, "_FEWEST_BLOCK_ROWS", 2)
    lengths = Rows(number(100)).map_reduce(
        lambda block, _: [len(block)], lambda one, two: one + two, width=width
    )
    assert sum(lengths) == 100
    assert lengths[0] == {1: 64, 5: 32, 50: 4}[width]  # powers of two


@pytest.mark.usefixtures("small_blocks")
def test_a_memory_map_is_not_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, number(95))
    mapped = np.load(path, mmap_mode="r")
    assert Rows(mapped).map_reduce(lambda block, _: block.sum(), lambda a, b: a + b) == 95 * 94


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_the_first_bad_row_is_named(bad: float, dtype: Any) -> None:
    array = number(95, 4).astype(dtype)
    array[61, 2] = array[61, 3] = array[62, 0] = array[94, 1] = bad
    word = "NaN" if np.isnan(bad) else "infinity"
    expected = f"codebook must be finite, got {word} in row 61, column 2"
    every = Rows(array, name="codebook")
    for call in (
        lambda: every.for_each(lambda block, start: None),
        lambda: every.map_reduce(lambda block, start: 0, lambda one, two: 0),
        lambda: every.sample(95, RandomState(0)),
        lambda: every.sample(95, RandomState(0), lambda block: block),
    ):
        with pytest.raises(InputError) as error:
            call()
        assert str(error.value) == expected


@pytest.mark.usefixtures("small_blocks")
def test_a_sample_names_the_first_bad_row_of_all() -> None:
    array = number(95)
    array[20:] = np.nan
    for seed in range(5):
        with pytest.raises(InputError, match="got NaN in row 20, column 0"):
            Rows(array).sample(10, RandomState(seed))


@pytest.mark.usefixtures("small_blocks")
def test_a_bad_row_is_found_in_every_pass() -> None:
    """What was checked once is not checked again, but what failed is no more than that."""
    array = number(95)
    array[73] = np.nan
    every = Rows(array)
    for _ in range(3):
        with pytest.raises(InputError, match="row 73"):
            every.for_each(lambda block, start: None)


@pytest.mark.usefixtures("small_blocks")
def test_every_block_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked, square_sum = [], numerics.square_sum

    def count(block: NDArray[Any]) -> float:
        checked.append(len(block))
        return square_sum(block)

    monkeypatch.setattr(rows, "square_sum", count)
    every = Rows(number(95))
    for _ in range(3):
        every.for_each(lambda block, start: None)
    assert sorted(checked) == [5, *[10] * 9]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.full((3, 2), 1e30, np.float32), "X has numbers up to 1e\\+30"),
        (np.full((3, 2), -1e30), "X has numbers up to 1e\\+30"),
        (np.full((3, 2), 1e200), "X has numbers up to 1e\\+200"),
        (np.full((3, 2), np.longdouble("1e400")), "infinity in row 0|numbers up to"),
    ],
)
def test_numbers_whose_squares_overflow_are_refused(array: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Rows(array).for_each(lambda block, start: None)


# --- samples ------------------------------------------------------------------------------


def test_a_sample_is_sorted_and_without_replacement() -> None:
    every = Rows(number(50))
    for m in (1, 7, 49, 50):
        for seed in range(10):
            drawn = every.sample(m, RandomState(seed))
            assert drawn.shape == (m, 2)
            assert (np.diff(drawn[:, 0]) > 0).all()
    first, again, other = (every.sample(7, RandomState(seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_every_row_is_equally_likely() -> None:
    every, state = Rows(number(40)), RandomState(0)
    counts = np.zeros(40)
    for _ in range(4000):
        counts[every.sample(10, state)[:, 0].astype(int)] += 1
    # Binomial of 4000 draws with probability 1/4: deviation 27.
    assert np.abs(counts - 1000).max() < 5 * 27


def test_a_sample_of_something_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MOST_BLOCK_ROWS", 10)
    every = Rows(number(95))
    seen = []

    def doubled(block: NDArray[Any]) -> NDArray[Any]:
        seen.append(len(block))
        return 2 * block[:, :1]

    drawn = every.sample(33, RandomState(0), doubled)
    assert seen == [10, 10, 10, 3]
    np.testing.assert_array_equal(drawn, 2 * every.sample(33, RandomState(0))[:, :1])


@pytest.mark.parametrize("m", [0, -1, 11, 2.0, None])
def test_bad_sample_sizes(m: Any) -> None:
    with pytest.raises(InputError, match="m must be .*from 1 to 10, got"):
        Rows(number(10)).sample(m, RandomState(0))


# --- the tree -----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [*range(1, 40), 255, 256, 257, 258, 272, 273, 511, 512, 600, 4097])
def test_the_tree_keeps_the_order(n: int) -> None:
    words = [f"{number}," for number in range(n)]
    assert tree_reduce(iter(words), lambda one, two: one + two) == "".join(words)


def test_the_tree_has_two_branches() -> None:
    def join(one: str, two: str) -> str:
        return f"({one}{two})"

    def nested(answers: list[str]) -> str:
        """What the tree is by definition: pairs, until one is left."""
        while len(answers) > 1:
            pairs = [answers[at : at + 2] for at in range(0, len(answers), 2)]
            answers = [join(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return answers[0]

    for n in (*range(1, 35), 255, 256, 257, 271, 273, 600, 5000):
        assert tree_reduce(iter(["."] * n), join) == nested(["."] * n)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("chunks", [(23,), (10, 13), (3, 0, 11, 9), (1,) * 23])
def test_blocks_do_not_cross_from_one_part_to_the_next(chunks: tuple[int, ...]) -> None:
    source = InChunks(number(23), chunks)
    lengths: list[int] = []
    Rows(source).for_each(lambda block, _: lengths.append(len(block)))
    expected = [min(10, n - at) for n in chunks for at in range(0, n, 10)]
    assert sorted(lengths) == sorted(expected)

    def join(one: str, two: str) -> str:
        return f"({one}{two})"

    parts, at = [], 0
    for n in chunks:
        parts.append([str(start) for start in range(at, at + n, 10)])
        at += n
    trees = [tree_reduce(iter(part), join) for part in parts if part]
    found = Rows(source).map_reduce(lambda _, start: str(start), join)
    assert found == tree_reduce(iter(trees), join)


def test_parts_of_a_power_of_two_do_not_change_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MOST_BLOCK_ROWS", 8)

    def tree_of(*chunks: int) -> str:
        every = Rows(InChunks(number(100), chunks))
        return every.map_reduce(lambda _, start: str(start), lambda one, two: f"({one}{two})")

    whole = tree_of(100)
    assert tree_of(*(8,) * 12, 4) == whole
    assert tree_of(*(16,) * 6, 4) == whole
    assert tree_of(64, 36) == whole
    assert tree_of(24, 24, 24, 28) != whole


def test_the_file_is_read_while_a_single_thread_computes() -> None:
    """The next block is asked for before the current one is done, even by one thread."""
    reading = threading.Event()

    class Slow(InChunks):
        def __getitem__(self, at: Any) -> NDArray[Any]:
            if isinstance(at, slice) and at.start >= 8192:
                reading.set()
            return super().__getitem__(at)

    def wait(block: NDArray[Any], start: int) -> int:
        assert start > 0 or reading.wait(timeout=20)
        return len(block)

    n = 3 * 8192
    with threadpool_limits(1, user_api="blas"):
        assert Rows(Slow(number(n), (n,))).map_reduce(wait, lambda one, two: one + two) == n


# --- memory maps --------------------------------------------------------------------------


def test_maps_are_read_in_parts_and_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "a.npy", number(5000, 8))
    opened = np.load(tmp_path / "a.npy", mmap_mode="r")
    monkeypatch.setattr(mapped, "_MOST_HELD", 1 << 17)
    source = unmapped(opened[::2])
    assert isinstance(source, mapped.MappedRows)
    np.testing.assert_array_equal(source[10:4000], number(5000, 8)[::2][10:4000])
    positions = np.array([0, 3, 700, 2499])
    np.testing.assert_array_equal(source[positions], number(5000, 8)[::2][positions])
    assert source[positions[:0]].shape == (0, 8)
    before = np.array(opened)
    Rows(opened).for_each(lambda *_: None)
    np.testing.assert_array_equal(opened, before)


def test_changes_in_a_private_map_are_not_given_back(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((100_000, 16)))
    private = np.load(tmp_path / "a.npy", mmap_mode="c")
    private[:] = 1.0
    for view in (private, private[5:], np.asarray(private)):
        Rows(view).for_each(lambda *_: None)
        assert unmapped(view) is view
    assert float(private.min()) == 1.0


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="/proc tells the memory in use")
def test_pages_of_every_map_are_given_back(tmp_path: Path) -> None:
    """Of files of users and of a store, of the whole array and of a part."""
    X = np.ones((1 << 18, 16))
    np.save(tmp_path / "a.npy", X)
    Store.create(tmp_path / "a.dh", {"x": X})
    stored = next((tmp_path / "a.dh").glob("*.npy"))

    def held(path: Path) -> int:
        """Kilobytes of a file that this process has in memory."""
        parts = Path("/proc/self/smaps").read_text(encoding="utf-8").split(str(path))[1:]
        return sum(int(part.partition("Rss:")[2].split()[0]) for part in parts)

    for path, array in (
        (tmp_path / "a.npy", np.load(tmp_path / "a.npy", mmap_mode="r")),
        (stored, Store.open(tmp_path / "a.dh").content["x"]),
    ):
        for view in (array, array[5:], np.asarray(array)[::2]):
            assert float(array.sum()) == X.size
            assert held(path) > 30_000
            mapped.give_back(view)
            assert held(path) < 3000
            assert isinstance(unmapped(view), mapped.MappedRows)
    mapped.give_back(X)
    assert float(X.sum()) == X.size


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="/proc tells the memory in use")
def test_a_pass_over_a_map_does_not_hold_it(tmp_path: Path) -> None:
    code = """
import sys
import numpy as np
from densehash.rows import Rows

def resident(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) * 1024

X = np.lib.format.open_memmap(sys.argv[1], mode="r")
Rows(X[:9]).sample(3, np.random.RandomState(0))  # all is loaded
Rows(X[:9]).for_each(lambda *_: None)
before = resident("VmHWM")
Rows(X).map_reduce(lambda block, start: block.sum(), np.add)
Rows(X).sample(5000, np.random.RandomState(0))
print(resident("VmHWM") - before)
"""
    path = tmp_path / "big.npy"
    np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(4_000_000, 128))[::999] = 1
    command = [sys.executable, "-c", code, str(path)]
    held = int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert held < 200e6  # of 512 MB


def test_a_tree_of_nothing_is_an_error() -> None:
    with pytest.raises(IndexError):
        tree_reduce(iter(()), lambda one, two: one)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("n", [1, 10, 11, 160, 161, 1700])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_answers_are_combined_in_the_order_of_their_blocks(n: int, threads: int) -> None:
    def slow_at_first(block: NDArray[Any], start: int) -> str:
        if start < 40:
            time.sleep(0.002)
        return f"{start},"

    with threadpool_limits(threads):
        found = Rows(number(n)).map_reduce(slow_at_first, lambda one, two: one + two)
    assert found == "".join(f"{start}," for start in range(0, n, 10))


# --- errors and threads -------------------------------------------------------------------


class DeliberateError(Exception):
    pass


def assert_nothing_is_left(before: list[int], threads: set[threading.Thread]) -> None:
    assert blas_counts() == before
    assert parallel._Held.depth == 0
    # A thread that was being started when the interrupt came ends by itself, a moment later.
    for thread in set(threading.enumerate()) - threads:
        thread.join(timeout=10)
        assert not thread.is_alive()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_first_failing_block_wins(threads: int) -> None:
    def fail(block: NDArray[Any], start: int) -> None:
        if start == 50:
            time.sleep(0.01)  # block 60 fails first
        if start >= 50:
            raise DeliberateError(start)

    running = set(threading.enumerate())
    with threadpool_limits(threads):
        before = blas_counts()
        with pytest.raises(DeliberateError, match="^50$"):
            Rows(number(200)).map_reduce(fail, lambda one, two: one)
        assert_nothing_is_left(before, running)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_an_error_while_combining(threads: int) -> None:
    def fail(one: int, two: int) -> int:
        raise DeliberateError

    running = set(threading.enumerate())
    with threadpool_limits(threads):
        before = blas_counts()
        with pytest.raises(DeliberateError):
            Rows(number(500)).map_reduce(lambda block, start: start, fail)
        assert_nothing_is_left(before, running)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_an_interrupt_leaves_nothing_behind(threads: int) -> None:
    done = []

    def interrupt(block: NDArray[Any], start: int) -> int:
        if start == 30:
            signal.raise_signal(signal.SIGINT)
        time.sleep(0.001)
        done.append(start)
        return start

    running = set(threading.enumerate())
    with threadpool_limits(threads):
        before = blas_counts()
        with pytest.raises(KeyboardInterrupt):
            Rows(number(100_000)).map_reduce(interrupt, lambda one, two: one)
        assert_nothing_is_left(before, running)
    assert len(done) < 1000
    assert Rows(number(100)).map_reduce(lambda block, _: 1, lambda one, two: one + two) == 10


def test_blocks_compute_with_one_blas_thread() -> None:
    with threadpool_limits(3):
        seen = Rows(number(100_000)).map_reduce(
            lambda block, _: [*blas_counts()], lambda one, two: one + two
        )
        assert blas_counts() == [3] * len(blas_counts())
    assert set(seen) == {1}


def test_overlapping_holds_are_released_by_the_last() -> None:
    with threadpool_limits(4):
        before = blas_counts()
        entered, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with parallel.one_blas_thread():
                entered.set()
                leave.wait(10)

        with parallel.one_blas_thread():
            other = threading.Thread(target=hold)
            other.start()
            assert entered.wait(10)
            assert set(blas_counts()) == {1}
            assert parallel.n_threads() == 4
        # The first one in was the first one out.
        assert set(blas_counts()) == {1}
        leave.set()
        other.join(10)
        assert blas_counts() == before


def test_a_limit_of_another_thread_is_no_obstacle() -> None:
    """threadpoolctl lets only the thread that set a limit change it, if it is asked nicely."""
    seen = []

    def hold() -> None:
        with parallel.one_blas_thread():
            seen.extend(blas_counts())

    with threadpool_limits(4):
        other = threading.Thread(target=hold)
        other.start()
        other.join(10)
        assert blas_counts() == [4] * len(seen)
    assert set(seen) == {1}


def test_many_threads_hold_and_release() -> None:
    def pass_over(_: int) -> float:
        return float(Rows(number(50_000)).map_reduce(lambda b, _: b.sum(), lambda a, b: a + b))

    with threadpool_limits(2):
        before = blas_counts()
        found = list(parallel.map_in_order(pass_over, range(20), threads=6))
        assert blas_counts() == before
    assert found == [50_000.0 * 49_999] * 20


def test_few_items_are_under_way_at_once() -> None:
    started: list[int] = []

    def start(item: int) -> int:
        started.append(item)
        return item

    answers = parallel.map_in_order(start, range(100), threads=3)
    assert next(answers) == 0
    time.sleep(0.05)
    assert len(started) <= 6
    answers.close()
    assert len(started) < 20


# --- bars ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("verbose", "patience", "shown"), [(False, -1, False), (True, -1, True), (True, 100, False)]
)
def test_a_bar_appears_where_it_is_asked_for_and_work_is_slow(
    verbose: bool,
    patience: float,
    shown: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", patience)
    Rows(number(50), verbose=verbose).for_each(lambda block, start: None, label="counting rows")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert ("counting rows" in printed.err) == shown
    assert ("100%" in printed.err) == shown
    assert shown or printed.err == ""


def test_a_bar_ends_where_work_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", -1)

    def fail() -> None:
        with progress.bar("work", 10, shown=True) as advance:
            advance(3)
            raise DeliberateError

    with pytest.raises(DeliberateError):
        fail()
    assert "30%" in capsys.readouterr().err
    with progress.bar("work", 2, shown=True) as advance:  # rich allows one live bar at a time
        advance(2)
