"""The kernels as guests of a process: threads, fork, signals, the interpreter's lock, memory."""

from __future__ import annotations

import multiprocessing
import os
import shutil
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

import numpy as np
import pytest
import reference
from hamming_cases import SANITIZED, make, same
from reference import Codes

from densehash import _native, hamming

HANG = 120.0  # seconds, on a busy machine: what takes longer never ends


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


# The end of the program

AT_EXIT = """
    import sys, threading, time
    import numpy as np
    from densehash import Index, hamming
    from densehash.index.multi_tables import build_tables
    n_threads = {n_threads}
    sys.setswitchinterval(1e-6)
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (200_000, 32), dtype=np.uint8)
    queries = codes[:256]
    rows = rng.standard_normal((4000, 16), dtype=np.float32)
    calls = [
        lambda: hamming.top_k(queries, codes, 10, n_threads=n_threads),
        lambda: hamming.top_k(queries[:2], codes[:100], 10, n_threads=n_threads),
        lambda: hamming.within(queries, codes, 100, n_threads=n_threads),
        lambda: hamming.histogram(queries, codes, n_threads=n_threads),
        lambda: build_tables(codes, 256, 16, n_threads=n_threads),
    ]
    for kind in ("flat", "grouped", "multi"):
        index = Index.build(rows, kind=kind, n_bits=64, random_state=0)
        calls.append(lambda index=index: index.search(rows[:500], 10, n_threads=n_threads))
    begun = threading.Barrier(len(calls) + 1)
    def serve(call):
        begun.wait()
        while True:
            call()
    for call in calls:
        threading.Thread(target=serve, args=(call,), daemon=True).start()
    begun.wait()
    time.sleep({seconds})
    print("the end")
"""


@pytest.mark.parametrize(("n_threads", "seconds"), [(1, 0.2), (4, 0.1)])
def test_the_program_ends_well_while_daemon_threads_search(n_threads: int, seconds: float) -> None:
    assert run(AT_EXIT.format(n_threads=n_threads, seconds=seconds)) == "the end\n"


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


# Arrays that change

CHANGING = """
    import threading, time
    import numpy as np
    from densehash import asymmetric, hamming
    from densehash.index import multi_tables, native
    rng = np.random.default_rng(0)
    n, q = 20_000, 40
    def drawn(*shape):
        return rng.integers(0, 256, shape, dtype=np.uint8)
    codes, queries, allowed = drawn(n, 4), drawn(q, 4), drawn(n) < 128
    wide = drawn(n, 32)
    relevant = rng.permutation(n)[: q * 400].reshape(q, 400)
    table = rng.integers(0, 99, (q, 4, 256), dtype=np.uint16)
    margins = rng.standard_normal((q, 32), dtype=np.float32)
    starts, rows = multi_tables.build_tables(codes, 32, 2)
    limits = np.arange(0, n + 1, n // 50)
    probes = np.argsort(rng.random((q, 50)), axis=1)[:, :20].astype(np.int32)
    ranks = rng.permutation(n).astype(np.uint32)
    candidates = rng.integers(0, n, (q, 300))
    vectors = rng.integers(0, 3, (n, 4)).astype(np.float32)
    scores = rng.standard_normal((q, 50), dtype=np.float32)
    lengths = rng.random(n, dtype=np.float32)
    tables = codes, 32, starts, rows, allowed
    calls = {
        "top_k": lambda: hamming.top_k(queries, codes, 10),
        "top_k, sampled": lambda: hamming.top_k(queries, np.tile(codes, (4, 1)), 100),
        "top_k, counted": lambda: hamming.top_k(queries[:4], codes, 5000),
        "within": lambda: hamming.within(queries, codes, 14),
        "distances": lambda: hamming.distances(queries, codes),
        "histogram": lambda: hamming.histogram(queries, codes),
        "relevant": lambda: hamming.histogram(queries, codes, relevant),
        "asymmetric": lambda: asymmetric.histogram(margins, codes, relevant),
        "table": lambda: asymmetric.table_histogram(table, codes, relevant, n_levels=400),
        "build": lambda: multi_tables.build_tables(codes, 32, 2),
        "build one": lambda: multi_tables.build_tables(codes[:, :2], 16, 1),
        "multi_top_k": lambda: multi_tables.multi_top_k(queries, *tables, 20),
        "multi_within": lambda: multi_tables.multi_within(queries, *tables, 4),
        "multi_probe": lambda: multi_tables.multi_probe(
            queries, margins, *tables, n_probes=50, k=20
        ),
        "nearest_groups": lambda: native.nearest_groups(scores, 20),
        "groups": lambda: native.top_k_in_groups(
            queries, codes, limits, probes, ranks, allowed, 500, ordered=True
        ),
        "groups, 256 bits": lambda: native.top_k_in_groups(
            wide[:q], wide, limits, probes, ranks, None, 500, ordered=True
        ),
        "products": lambda: native.top_products_in_groups(
            queries, scores[:, 0].copy(), codes, lengths, 20.0, limits, probes, ranks, allowed, 500,
            ordered=True,
        ),
        "rerank": lambda: native.rerank(queries, vectors, candidates, ranks, 50, metric="l2"),
        "rerank_codes": lambda: native.rerank_codes(margins, codes, candidates, ranks, 50),
    }
    # Numbers that are right, and some that lead far away.
    wrong = {
        "codes": (codes, [0, 170, 255]),
        "wide": (wide, [0, 255]),
        "queries": (queries, [0, 170, 255]),
        "relevant": (relevant, [2**40, 5, -5, n]),
        "table": (table, [2**16 - 1, 0]),
        "margins": (margins, [np.nan, 1, np.inf]),
        "starts": (starts, [2**32 - 1, 0, n, 7]),
        "rows": (rows, [2**32 - 1, n, 7]),
        "allowed": (allowed, [True, False]),
        "limits": (limits, [2**40, -1, n + 1, 0]),
        "probes": (probes, [2**31 - 1, -1, 50, 0]),
        "ranks": (ranks, [2**32 - 1, n, 0]),
        "candidates": (candidates, [2**40, -9, -1, n]),
        "vectors": (vectors, [np.nan, 1, np.inf]),
        "scores": (scores, [np.nan, 1, -np.inf]),
        "lengths": (lengths, [np.nan, 1, -np.inf]),
    }
    right = {name: array.copy() for name, (array, _) in wrong.items()}
    done = False
    def change():
        numbers = np.random.default_rng(1)
        while not done:
            for name, (array, values) in wrong.items():
                every = int(numbers.integers(1, 4))
                array[::every] = values[numbers.integers(len(values))]
                time.sleep(0)
                array[:] = right[name]
    changing = threading.Thread(target=change, daemon=True)
    changing.start()
    n_calls = 0
    end = time.monotonic() + {seconds}
    while time.monotonic() < end or n_calls == 0:
        for name, call in calls.items():
            print(name, flush=True)
            try:
                call()
            except Exception:  # wrong numbers, which may be right again before they are named
                pass
            n_calls += 1
    done = True
    changing.join()
    print("the end")
"""


def test_memory_is_safe_while_another_thread_changes_the_arrays() -> None:
    script = CHANGING.replace("{seconds}", "2")
    assert run(script).endswith("the end\n")


@pytest.mark.parametrize("bad", [2**40, -(2**40), 1000, -1])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_positions_that_changed_after_they_were_checked_are_refused(bad: int, at: int) -> None:
    # What native code sees then, without a race.
    codes = np.zeros((1000, 4), dtype=np.uint8)
    limits, positions = np.array([0, 3]), np.array([5, 6, 7])
    positions[at] = bad
    table = np.zeros((1, 4, 256), dtype=np.uint16)
    simd = hamming.instruction_set()
    with pytest.raises(RuntimeError, match="relevant codes were changed"):
        _native.histograms(codes[:1], codes, limits, positions, 1, simd)
    with pytest.raises(RuntimeError, match="relevant codes were changed"):
        _native.lookup_histograms(table, codes, limits, positions, 4096, 4, 1)


# Memory


def test_without_memory_for_a_thread_others_do_the_work(tmp_path: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    root, program = Path(__file__).parent.parent, tmp_path / "out_of_memory"
    source = root / "tests" / "native" / "out_of_memory.cpp"
    options = ["-std=c++17", "-pthread", f"-I{root / 'native'}"]
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run([*compiler.split(), *options, source, "-o", program], check=True, env=plain)
    done = subprocess.run(
        [program], capture_output=True, text=True, timeout=HANG, check=False, env=plain
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 4  # or nothing failed


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
    import ctypes
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
    for call in {calls}:
        with open("/proc/self/clear_refs", "w") as reset:
            reset.write("5")
        before = status("VmRSS")
        answer = eval(call)
        parts = answer if isinstance(answer, tuple) else (answer,)
        print(status("VmHWM") - before - sum(part.nbytes for part in parts), flush=True)
        del answer, parts
        ctypes.CDLL(None).malloc_trim(0)  # or the next call would hide what it takes
"""


@pytest.mark.skipif(SANITIZED, reason="a sanitizer has its own memory")
@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="this system tells no peak memory"
)
def test_memory_beyond_inputs_and_outputs_is_bounded() -> None:
    taken = map(int, run(MEMORY.format(calls=[*MEMORY_CALLS.values()])).split())
    for (name, call), n_bytes in zip(MEMORY_CALLS.items(), taken, strict=True):
        n_threads = int(call.split("n_threads=")[1].rstrip(")"))
        assert n_bytes < n_threads * 32 * 2**20, name


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
