"""The kernels as guests of a process: threads, fork, signals, the interpreter's lock, memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import reference
from hamming_cases import SANITIZED, make, same
from reference import Codes

from densehash import hamming

HANG = 60.0  # seconds: what takes longer never ends


def run(script: str) -> str:
    """What a script prints that runs in a process of its own; it must end well."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True, text=True, timeout=HANG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


# Threads


def test_calls_from_many_python_threads_at_once() -> None:
    pairs = [make("pool", 40, 4000 + 100 * i, 64, seed=i) for i in range(8)]
    expected = [reference.top_k(*pair, 50) for pair in pairs]

    def ask(i: int) -> bool:
        return same(hamming.top_k(*pairs[i], 50, n_threads=2), expected[i])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, list(range(8)) * 6))


def test_the_interpreter_lock_is_released() -> None:
    queries, codes = make("random", 512, 2_000_000, 64, seed=0)
    ticks, done = [], threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    start = time.perf_counter()
    hamming.top_k(queries, codes, 10, n_threads=1)
    end = time.perf_counter()
    done.set()
    ticker.join()
    # A thread that waits for the lock ticks once before the call and once after it.
    assert sum(start < at < end for at in ticks) > 3


# Fork


def ask_in_a_child(pair: tuple[Codes, Codes], expected: Any) -> None:
    for n_threads in (2, 1, 8):
        if not same(hamming.top_k(*pair, 50, n_threads=n_threads), expected):
            sys.exit(3)


def forked(target: Callable[..., None], *args: Any) -> int | None:
    """The exit code of a forked child, None if it hangs."""
    child = multiprocessing.get_context("fork").Process(target=target, args=args)
    child.start()
    child.join(HANG)
    code = child.exitcode
    if code is None:
        child.kill()
        child.join()
    return code


fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
# From Python 3.12 a fork beside living threads is a warning; here it is the point.
quiet = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@fork
@quiet
def test_children_answer_after_a_threaded_call_in_the_parent() -> None:
    pair = make("random", 300, 5000, 64, seed=1)
    expected = reference.top_k(*pair, 50)
    assert same(hamming.top_k(*pair, 50, n_threads=2), expected)
    for _ in range(3):
        assert forked(ask_in_a_child, pair, expected) == 0
        assert same(hamming.top_k(*pair, 50, n_threads=2), expected)


@fork
@quiet
def test_children_of_children_answer() -> None:
    pair = make("random", 300, 5000, 64, seed=2)
    expected = reference.top_k(*pair, 50)
    hamming.top_k(*pair, 50, n_threads=2)

    def child() -> None:
        ask_in_a_child(pair, expected)
        sys.exit(forked(ask_in_a_child, pair, expected))

    assert forked(child) == 0


@fork
@quiet
def test_children_answer_that_are_born_during_a_call() -> None:
    pair = make("random", 300, 5000, 64, seed=3)
    expected = reference.top_k(*pair, 50)
    done = threading.Event()

    def busy() -> None:
        while not done.is_set():
            hamming.top_k(*pair, 50, n_threads=2)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        codes = [forked(ask_in_a_child, pair, expected) for _ in range(5)]
    finally:
        done.set()
        thread.join()
    assert codes == [0] * 5


# Signals

LONG_CALLS = {
    "top_k": "hamming.top_k(queries, codes, 10, n_threads={})",
    "top_k, many neighbours": "hamming.top_k(queries[:5000], codes, 20_000, n_threads={})",
    "within": "hamming.within(queries, codes, 3, n_threads={})",
    "histogram": "hamming.histogram(queries, codes, n_threads={})",
    "wide": "hamming.top_k(wide(queries[:99_000]), wide(codes[:300_000]), 10, n_threads={})",
    # The second query keeps one thread busy long after the other has run out of work.
    "uneven": "hamming.histogram(wide(codes[:2]), wide(codes[:999]), uneven(), n_threads={})",
}
LONG_CALL = """
    import os
    import sys
    import numpy as np
    from densehash import hamming
    rng = np.random.default_rng(0)
    queries = rng.integers(0, 256, (200_000, 8), dtype=np.uint8)
    codes = rng.integers(0, 256, (4_000_000, 8), dtype=np.uint8)
    def wide(rows):
        return rows.repeat(64, axis=1)
    def uneven():
        os.environ["DENSEHASH_SIMD"] = "scalar"  # the slowest there is
        few, many = np.zeros(100_000, dtype=int), np.zeros(60_000_000, dtype=int)
        few[0] = many[0] = 998  # so that neither rises
        return [few, many]
    print("calling", flush=True)
    try:
        {call}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    else:
        sys.exit("the call ended before the signal")
    found, order = hamming.top_k(codes[:40], codes[:40], 1, n_threads=2)
    assert not found.any() and order.ravel().tolist() == list(range(40))
    print("usable", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals to send")
@pytest.mark.parametrize(
    ("name", "n_threads"), [(name, 1 + at % 2) for at, name in enumerate(LONG_CALLS)]
)
def test_control_c_stops_a_long_call(name: str, n_threads: int) -> None:
    script = LONG_CALL.format(call=LONG_CALLS[name].format(n_threads))
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        killer = threading.Timer(HANG, child.kill)
        killer.start()
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "calling\n"
        time.sleep(1.0 if "wide" in LONG_CALLS[name] else 0.3)  # until it has made its arrays
        child.send_signal(signal.SIGINT)
        sent = time.perf_counter()
        line = child.stdout.readline()
        took = time.perf_counter() - sent
        rest, errors = child.stdout.read(), child.stderr.read()  # both are short
        child.wait()
        killer.cancel()
    assert (line, rest, child.returncode) == ("interrupted\n", "usable\n", 0), errors
    # It is to take less than a second; a busy machine gets three.
    assert took < 3


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")
def test_a_signal_that_raises_nothing_stops_nothing() -> None:
    queries, codes = make("random", 64, 100_000, 64, seed=4)
    expected = reference.top_k(queries, codes, 10)
    calls = []
    before = signal.signal(signal.SIGALRM, lambda *_: calls.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        answers = [hamming.top_k(queries, codes, 10, n_threads=2) for _ in range(10)]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert calls
    assert all(same(answer, expected) for answer in answers)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")
def test_what_a_signal_raises_comes_out_of_the_call() -> None:
    queries, codes = make("random", 20_000, 100_000, 64, seed=5)

    def out(*_: object) -> None:
        raise TimeoutError("the bell rang")

    before = signal.signal(signal.SIGALRM, out)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(TimeoutError, match="the bell rang"):
            hamming.top_k(queries, codes, 10, n_threads=2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Memory

MEMORY_CALLS = {
    "top_k of half the codes": "hamming.top_k(queries[:64], codes[:400_000], 200_000, n_threads=2)",
    "top_k of all codes": "hamming.top_k(queries[:16], codes, len(codes), n_threads=2)",
    "top_k, few": "hamming.top_k(queries, codes, 10, n_threads=2)",
    "top_k, some thousands": "hamming.top_k(queries, codes, 3000, n_threads=2)",
    "top_k, many threads": "hamming.top_k(queries[:64], codes, 2000, n_threads=8)",
    "top_k, worst order": "hamming.top_k(queries[:64], falling, 1000, n_threads=2)",
    "within": "hamming.within(queries[:64], codes, 29, n_threads=2)",
    "distances": "hamming.distances(queries[:64], codes, n_threads=2)",
    "histogram": "hamming.histogram(queries, codes, n_threads=2)",
    "relevant": "hamming.histogram(queries, codes, relevant, n_threads=2)",
}
MEMORY = """
    import numpy as np
    from densehash import hamming
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (1_000_000, 8), dtype=np.uint8)
    queries = rng.integers(0, 256, (1000, 8), dtype=np.uint8)
    relevant = rng.integers(0, len(codes), (1000, 10_000))
    falling = np.full((1_000_000, 8), 255, dtype=np.uint8)
    falling[np.arange(8) >= 8 - np.arange(1_000_000)[:, None] * 9 // 1_000_000] = 0
    def status(name):
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024
    hamming.top_k(queries[:64], codes[:1000], 10, n_threads=2)  # what is set up once
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")
    before = status("VmRSS")
    answer = {call}
    parts = answer if isinstance(answer, tuple) else (answer,)
    print(status("VmHWM") - before - sum(part.nbytes for part in parts))
"""


@pytest.mark.skipif(SANITIZED, reason="a sanitizer has its own memory")
@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="this system tells no peak memory"
)
@pytest.mark.parametrize("call", MEMORY_CALLS.values(), ids=MEMORY_CALLS)
def test_memory_beyond_inputs_and_outputs_is_bounded(call: str) -> None:
    n_threads = int(call.split("n_threads=")[1].rstrip(")"))
    assert int(run(MEMORY.format(call=call))) < n_threads * 32 * 2**20


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs mprotect as on Linux")
def test_no_kernel_reads_past_the_last_code_or_query() -> None:
    script = """
        import ctypes, mmap, os
        import numpy as np
        from densehash import hamming
        page = mmap.PAGESIZE
        libc = ctypes.CDLL(None, use_errno=True)
        def guarded(rows):
            # The same rows, right before a page that must not be touched.
            room = -(-rows.nbytes // page) * page
            memory = mmap.mmap(-1, room + page)
            start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            if libc.mprotect(ctypes.c_void_p(start + room), ctypes.c_size_t(page), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
            view = np.frombuffer(memory, np.uint8, rows.nbytes, room - rows.nbytes)
            view = view.reshape(rows.shape)
            view[:] = rows
            return view
        rng = np.random.default_rng(0)
        for name in hamming.instruction_sets():
            os.environ["DENSEHASH_SIMD"] = name
            for width in (*range(1, 18), 24, 31, 32, 33, 48, 63, 64, 65, 125, 512):
                for q, n in ((1, 1), (1, 15), (3, 1000), (8, 17), (33, 1), (40, 65), (65, 1025)):
                    print(name, width, q, n, flush=True)
                    sizes = (q, width), (n, width)
                    pair = [rng.integers(0, 256, size, dtype=np.uint8) for size in sizes]
                    near = [guarded(rows) for rows in pair]
                    for function, more in (
                        (hamming.top_k, (5,)), (hamming.top_k, (n,)),
                        (hamming.within, (4 * width,)), (hamming.distances, ()),
                        (hamming.histogram, ()),
                    ):
                        found, expected = function(*near, *more), function(*pair, *more)
                        for left, right in zip(found, expected):
                            assert (left == right).all()
    """
    run(script)
