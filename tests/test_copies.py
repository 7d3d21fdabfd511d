"""Copies by several threads through a few buffers: all bytes, in their places, once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from densehash._native import Filling

MEGABYTE = 1 << 20


@pytest.mark.parametrize("size", [1, 3 * MEGABYTE, 10 * MEGABYTE + 7])
@pytest.mark.parametrize("first", [0, 2])
def test_all_bytes_arrive_while_buffers_are_emptied(size: int, first: int) -> None:
    source = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    source.flags.writeable = False
    buffers = np.zeros((3, 3 * MEGABYTE // 2 + 1), np.uint8)
    filling = Filling(source, buffers, first)
    assert filling.n_pieces == -(-size // buffers.shape[1])
    found = []
    with ThreadPoolExecutor(4) as crew:
        work = [crew.submit(filling.work) for _ in range(4)]
        for piece in range(filling.n_pieces):
            filling.allow(piece + len(buffers))
            filling.wait_for(piece)
            length = min(buffers.shape[1], size - piece * buffers.shape[1])
            buffer = buffers[(first + piece) % len(buffers)]
            found.append(buffer[:length].copy())
            buffer[:] = 99  # what is written here before it may be would be lost
        for one in work:
            one.result()
    np.testing.assert_array_equal(np.concatenate(found), source)


def test_nothing_is_written_before_it_may_be_and_threads_end() -> None:
    source = np.ones(8 * MEGABYTE, np.uint8)
    buffers = np.zeros((4, MEGABYTE), np.uint8)
    filling = Filling(source, buffers, 0)
    with ThreadPoolExecutor(3) as crew:
        work = [crew.submit(filling.work) for _ in range(3)]
        filling.allow(2)
        filling.wait_for(0)
        filling.wait_for(1)
        filling.stop()
        for one in work:
            one.result()
    assert buffers.mean(axis=1).tolist() == [1, 1, 0, 0]
