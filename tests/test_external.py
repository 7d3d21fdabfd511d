"""Modules for the benchmarks of others, fitted and asked as their configurations say.

ANN_BENCHMARKS and VIBE in the environment say where clones of these benchmarks are; their own base
classes, readers of configurations and runners are taken from there.
"""

import importlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

EXTERNAL = Path(__file__).parents[1] / "bench" / "external"
BASE = """
class BaseANN:
    def get_batch_results(self):
        return self.res

    def __str__(self):
        return self.name
"""
RNG = np.random.default_rng(0)
ROWS, QUERIES = 600, 20
CENTERS = RNG.standard_normal((12, 16))
FLOATS = (CENTERS[RNG.integers(12, size=ROWS + QUERIES)]
          + 0.5 * RNG.standard_normal((ROWS + QUERIES, 16))).astype(np.float32)  # fmt: skip
BITS = FLOATS > 0


class Benchmark(NamedTuple):
    """One of them: the package, and the variable that says where a clone of it is."""

    folder: str
    package: str
    variable: str


BENCHMARKS = [
    Benchmark("ann-benchmarks", "ann_benchmarks", "ANN_BENCHMARKS"),
    Benchmark("vibe", "vibe", "VIBE"),
]


@pytest.fixture(params=BENCHMARKS, ids=lambda each: each.folder)
def benchmark_of(request: pytest.FixtureRequest) -> Benchmark:
    found: Benchmark = request.param
    if not EXTERNAL.exists():
        pytest.skip("the benchmarks are not here")
    return found


@pytest.fixture
def tree(
    benchmark_of: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A tree of the benchmark with our module in it: that of a clone, or what a module needs."""
    algorithms = tmp_path / benchmark_of.package / "algorithms"
    clone = os.environ.get(benchmark_of.variable)
    if clone is None:
        (algorithms / "base").mkdir(parents=True)
        (algorithms / "base" / "module.py").write_text(BASE)
    else:
        shutil.copytree(Path(clone, benchmark_of.package), tmp_path / benchmark_of.package)
    ours = algorithms / "densehash"
    shutil.copytree(EXTERNAL / benchmark_of.folder / "densehash", ours, dirs_exist_ok=True)
    monkeypatch.syspath_prepend(tmp_path)
    before = {*sys.modules}
    yield algorithms
    for name in {*sys.modules} - before:
        if name.partition(".")[0] == benchmark_of.package:
            del sys.modules[name]


def definitions(
    benchmark: Benchmark, algorithms: Path, point_type: str, metric: str
) -> list[tuple[str, list[Any], list[list[Any]]]]:
    """Constructors, their arguments, and arguments of queries, as the benchmark reads them."""
    if os.environ.get(benchmark.variable) is None:
        pytest.skip(f"{benchmark.variable} does not say where a clone of {benchmark.folder} is")
    try:
        reader = importlib.import_module(f"{benchmark.package}.definitions")
    except ImportError as error:
        pytest.skip(f"{benchmark.folder} needs {error.name}")
    found = reader.get_definitions(16, point_type, metric, base_dir=str(algorithms))
    own = f"{benchmark.package}.algorithms.densehash"
    return [
        (each.constructor, each.arguments, each.query_argument_groups)
        for each in found
        if each.module == own
    ]


def module_of(benchmark: Benchmark) -> Any:
    return importlib.import_module(f"{benchmark.package}.algorithms.densehash.module")


def nearest(rows: Any, queries: Any, metric: str, n: int) -> Any:
    if metric == "hamming":
        return np.sort((rows[None] != queries[:, None]).sum(axis=2))[:, :n]
    a, b = (each.astype(np.float64) for each in (rows, queries))
    if metric in ("angular", "cosine", "normalized"):
        a, b = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (a, b))
    if metric == "euclidean":
        return np.argsort(np.linalg.norm(a[None] - b[:, None], axis=2), kind="stable")[:, :n]
    return np.argsort(-b @ a.T, kind="stable")[:, :n]


def recall_of(found: Any, truth: Any) -> float:
    shares = [
        len({*map(int, a)} & {*b}) / len(b) for a, b in zip(found, truth.tolist(), strict=True)
    ]
    return float(np.mean(shares))


def check_vectors(algorithm: Any, data: Any, metric: str, recalls: list[float]) -> None:
    rows, queries = data[:ROWS], data[ROWS:]
    algorithm.fit(rows)
    truth = nearest(rows, queries, metric, 10)
    for recall in recalls:
        algorithm.set_query_arguments(recall)
        assert str(recall) in str(algorithm)
        one_by_one = [algorithm.query(query, 10) for query in queries]
        algorithm.batch_query(queries, 10)
        together = algorithm.get_batch_results()
        np.testing.assert_array_equal(one_by_one, together)
        assert all(len({*row}) == 10 for row in together)
        assert recall_of(together, truth) >= (0.99 if recall == 1 else recall - 0.15)


# Types of points, as the benchmark calls them, and metrics.
CASES = {
    "ann-benchmarks": [("float", "angular"), ("float", "euclidean")],
    "vibe": [
        *(("float", metric) for metric in ("euclidean", "cosine", "ip", "normalized")),
        *((point_type, "euclidean") for point_type in ("uint8", "int8")),
        *((point_type, "cosine") for point_type in ("uint8", "int8")),
    ],
}


def data_of(point_type: str, metric: str) -> Any:
    if point_type == "float":
        lengths = np.linalg.norm(FLOATS, axis=1, keepdims=True)
        return FLOATS / lengths if metric == "normalized" else FLOATS
    shift = 128 if point_type == "uint8" else 0
    limits = np.iinfo(point_type)
    return np.clip(np.rint(20 * FLOATS + shift), limits.min, limits.max).astype(point_type)


def bits_of(benchmark: Benchmark) -> Any:
    return np.packbits(BITS, axis=1) if benchmark.folder == "vibe" else BITS


@pytest.mark.parametrize("groups_a_row", [1, 2])
def test_vectors(benchmark_of: Benchmark, tree: Path, groups_a_row: int) -> None:
    module = module_of(benchmark_of)
    for point_type, metric in CASES[benchmark_of.folder]:
        algorithm = module.Densehash(metric, groups_a_row)
        check_vectors(algorithm, data_of(point_type, metric), metric, [0.9, 1.0])


def test_bits(benchmark_of: Benchmark, tree: Path) -> None:
    """Which of equally distant rows come first is nobody's business; how distant they are is."""
    algorithm = module_of(benchmark_of).DensehashBits("hamming")
    bits = bits_of(benchmark_of)
    rows, queries = bits[:ROWS], bits[ROWS:]
    algorithm.fit(rows)
    truth = nearest(BITS[:ROWS], BITS[ROWS:], "hamming", 10)
    one_by_one = [algorithm.query(query, 10) for query in queries]
    algorithm.batch_query(queries, 10)
    for found in (one_by_one, algorithm.get_batch_results()):
        distances = (BITS[:ROWS][np.array(found)] != BITS[ROWS:, None]).sum(axis=2)
        np.testing.assert_array_equal(distances, truth)
    with pytest.raises(NotImplementedError, match="Hamming"):
        module_of(benchmark_of).DensehashBits("jaccard")


def test_configurations(benchmark_of: Benchmark, tree: Path) -> None:
    """As the benchmark itself reads them."""
    for point_type, metric in CASES[benchmark_of.folder]:
        found = definitions(benchmark_of, tree, point_type, metric)
        assert [each[:2] for each in found] == [
            ("Densehash", [metric, 1]),
            ("Densehash", [metric, 2]),
        ]
        for _, _, asked in found:
            recalls = [recall for (recall,) in asked]
            assert recalls == sorted({*recalls})
            assert 0 < recalls[0] < recalls[-1] == 1
    bit = "bit" if benchmark_of.folder == "ann-benchmarks" else "binary"
    assert definitions(benchmark_of, tree, bit, "hamming") == [("DensehashBits", ["hamming"], [])]


@pytest.mark.parametrize("metric", ["euclidean", "hamming"])
def test_the_runner_of_the_benchmark(benchmark_of: Benchmark, tree: Path, metric: str) -> None:
    """Its own loop of queries, one by one and all at once."""
    if os.environ.get(benchmark_of.variable) is None:
        pytest.skip(f"{benchmark_of.variable} does not say where a clone is")
    try:
        runner = importlib.import_module(f"{benchmark_of.package}.runner")
        importlib.import_module(f"{benchmark_of.package}.distance")
    except ImportError as error:
        pytest.skip(f"{benchmark_of.folder} needs {error.name}")
    module = module_of(benchmark_of)
    if metric == "euclidean":
        algorithm, data = module.Densehash(metric, 1), data_of("float", metric)
        algorithm.set_query_arguments(0.95)
    else:
        algorithm, data = module.DensehashBits(metric), bits_of(benchmark_of)
    algorithm.fit(data[:ROWS])
    for batch in (False, True):
        attributes, results = runner.run_individual_query(
            algorithm, data[:ROWS], data[ROWS:], metric, 10, 1, batch
        )
        assert attributes["name"] == str(algorithm)
        assert attributes["candidates"] == 10
        assert len(results) == QUERIES
        for _, candidates in results:
            distances = [distance for _, distance in candidates]
            assert distances == sorted(distances)
