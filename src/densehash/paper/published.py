"""The seconds that the paper reports in its Tables 1 to 5."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ALPHAS", "FEATURES", "PASSES", "TABLE_BITS", "TIMES", "TRAINING_BY_ALPHA",
           "TRAINING_BY_P", "Times"]  # fmt: skip

TABLE_BITS = (16, 32, 64, 96)

FEATURES = {"GIST1M": 960, "Flickr1M": 512, "SIFT1M": 128}
"""The paper's three sets, and how many features each has."""


class Times(NamedTuple):
    """Seconds at 16, 32, 64 and 96 bits."""

    training: tuple[float, float, float, float]
    test: tuple[float, float, float, float]


def _times(training: str, microseconds: str) -> Times:
    a, b, c, d = map(float, training.split())
    e, f, g, h = (1e-6 * float(number) for number in microseconds.split())
    return Times((a, b, c, d), (e, f, g, h))


TIMES = {
    "GIST1M": {
        "LSH": _times("0.4 1.0 2.3 2.6", "1.2 2.6 5.8 7.1"),
        "KLSH": _times("27.4 27.7 27.9 28.3", "30.0 32.3 34.7 36.5"),
        "SIKH": _times("1.3 2.5 3.8 5.2", "3.9 6.3 10.5 15.9"),
        "PCAH": _times("31.3 57.2 60.3 75.0", "1.2 2.7 5.6 7.2"),
        "SpH": _times("42.5 77.8 125.3 239.8", "23.9 42.1 93.4 270.1"),
        "AGH": _times("340.8 344.7 349.8 356.0", "33.3 52.6 71.2 191.3"),
        "DSH": _times("33.1 45.9 56.5 63.6", "1.3 2.7 5.8 7.1"),
    },
    "Flickr1M": {
        "LSH": _times("0.3 0.8 1.5 1.8", "0.9 2.0 2.8 4.6"),
        "KLSH": _times("18.2 18.5 18.9 19.4", "15.2 18.9 22.8 25.1"),
        "SIKH": _times("1.1 2.0 2.8 4.3", "2.8 3.8 9.1 12.3"),
        "PCAH": _times("16.7 29.4 31.4 33.7", "1.1 2.1 2.9 4.9"),
        "SpH": _times("22.3 45.6 106.2 205.5", "16.7 38.5 88.6 251.6"),
        "AGH": _times("232.9 247.9 257.4 268.1", "28.2 42.2 52.2 155.3"),
        "DSH": _times("17.4 29.3 35.8 45.9", "0.9 2.1 2.8 4.6"),
    },
    "SIFT1M": {
        "LSH": _times("0.1 0.3 0.6 0.8", "0.4 1.1 1.8 2.4"),
        "KLSH": _times("10.2 10.4 10.8 11.2", "12.2 13.1 13.8 15.7"),
        "SIKH": _times("0.5 1.1 2.3 3.5", "0.9 2.3 6.3 7.0"),
        "PCAH": _times("3.9 6.5 7.5 7.8", "0.5 1.3 2.0 2.5"),
        "SpH": _times("11.4 28.1 92.7 189.1", "11.8 33.3 77.1 230.9"),
        "AGH": _times("135.2 142.5 148.1 155.1", "15.3 23.9 31.2 57.1"),
        "DSH": _times("8.4 12.2 15.5 20.1", "0.5 1.2 1.9 2.6"),
    },
}
"""Tables 1 to 3, by set and method."""

PASSES = (1, 2, 3, 4, 5, 6)

TRAINING_BY_P = {
    "GIST1M": (18.8, 37.2, 56.5, 76.2, 94.1, 111.7),
    "Flickr1M": (11.7, 23.5, 35.8, 48.1, 62.6, 76.4),
    "SIFT1M": (4.8, 9.1, 15.5, 21.2, 25.5, 31.9),
}
"""Table 4: seconds to train DSH with 64 bits, for each p of PASSES."""

ALPHAS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)

TRAINING_BY_ALPHA = {
    "GIST1M": (48.4, 52.9, 56.5, 68.4, 74.6, 83.5),
    "Flickr1M": (21.8, 25.3, 35.8, 46.7, 57.3, 68.2),
    "SIFT1M": (9.8, 11.2, 15.5, 21.3, 28.2, 37.9),
}
"""Table 5: seconds to train DSH with 64 bits, for each alpha of ALPHAS."""
