"""faiss's codes, measured as ours are."""

import numpy as np
import pytest
from hasher_cases import mixture

from densehash.datasets import DataSet
from densehash.paper import peers
from densehash.paper.problem import Problem
from densehash.paper.results import Measured
from densehash.paper.runs import Run, measure

faiss = pytest.importorskip("faiss", reason="the peers need the extra 'bench'")


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem.of(DataSet("mixture", mixture(2000), None), n_queries=40)


def measured(problem: Problem, method: str, n_bits: int) -> Measured:
    record = measure(problem, Run(method, n_bits))
    assert "refused" not in record, record
    return Measured(record, len(problem.queries), len(problem.base))


@pytest.mark.parametrize(
    ("method", "n_bits"),
    [
        ("faiss LSH", 32),
        ("faiss PQ", 32),
        ("faiss PQ", 40),
        ("faiss RaBitQ", 80),
    ],
)
def test_peers_take_the_bytes_that_they_may(problem: Problem, method: str, n_bits: int) -> None:
    found = measured(problem, method, n_bits)
    assert found.bytes_a_row == n_bits // 8
    assert 0.02 < found.mean_average_precision < 1
    assert found.recall(10) < found.recall(30) <= found.recall(len(problem.base)) == 1


@pytest.mark.parametrize("n_bits", [32, 40])  # 24 features divide into 4 parts, not into 5
def test_a_product_quantiser_is_ranked_as_it_ranks_itself(problem: Problem, n_bits: int) -> None:
    found = measured(problem, "faiss PQ", n_bits)
    index = peers._pq(faiss, 24, n_bits)
    index.train(problem.vectors.astype(np.float32))
    index.add(problem.vectors.astype(np.float32))
    _, positions = index.search(problem.asked.astype(np.float32), 50)
    hits = [np.isin(near, row).mean() for near, row in zip(problem.near, positions, strict=True)]
    assert found.recall(50) == pytest.approx(np.mean(hits), abs=0.01)


def test_a_learnt_rotation_leaves_the_quantiser_as_faiss_makes_it(problem: Problem) -> None:
    """Shared with the rotation, it would go on from there with few passes, and rank worse."""
    index, usual = peers._opq(faiss, 24, 8), faiss.IndexPQ(8, 1, 8).pq
    index.train(problem.vectors[:260].astype(np.float32))
    assert index.sa_code_size() == 1
    learnt = faiss.downcast_index(index.index).pq
    assert learnt.cp.niter == usual.cp.niter
    assert learnt.train_type == usual.train_type
    assert faiss.downcast_VectorTransform(index.chain.at(0)).niter == 50


@pytest.mark.parametrize(
    ("method", "n_bits", "message"),
    [
        ("faiss PQ", 12, "whole bytes"),
        ("faiss PQ", 8 * 25, "whole bytes, at most 24"),
        ("faiss OPQ", 12, "whole bytes"),
        ("faiss RaBitQ", 64, "got 64 bits in all"),
        ("faiss RaBitQ", 96, "1 to 24 bits"),
    ],
)
def test_what_peers_cannot_do_is_a_record(
    problem: Problem, method: str, n_bits: int, message: str
) -> None:
    assert message in measure(problem, Run(method, n_bits))["refused"]
