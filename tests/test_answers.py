"""The same bytes on every architecture and instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from answers import FOLDER, Answers, all_answers
from hamming_cases import forced

from densehash import hamming


@pytest.fixture(scope="module")
def stored() -> Answers:
    return dict(np.load(FOLDER / "answers.npz"))


@pytest.mark.parametrize("name", hamming.instruction_sets())
def test_answers_are_the_same_bytes_everywhere(name: str, stored: Answers) -> None:
    with forced(name):
        found = all_answers()
    assert found.keys() == stored.keys()
    for key, expected in stored.items():
        assert found[key].dtype == expected.dtype, key
        assert found[key].shape == expected.shape, key
        # Floats by their bits: zeros of both signs are not the same.
        assert found[key].tobytes() == expected.tobytes(), key
