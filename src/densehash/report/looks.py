"""How each method looks: it has the same colour, mark and dash in every figure of a page.

The colours were found by a search: on both backgrounds they have a contrast of at least 3 to 1,
and no two look similar with any of the three kinds of colour blindness (tested). No two marks are
the same either, so that nothing depends only on colour.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = ["ASYMMETRIC", "ESTIMATES", "KNOWN", "THEMES", "Look", "looks_of"]

THEMES = {
    "light": {
        "paper": "#ffffff",
        "panel": "#f5f5f2",
        "ink": "#1a1c21",
        "muted": "#5c606a",
        "rule": "#dcdcd6",
        "grid": "#ececec",
        "accent": "#b0121f",
        "mark": "#fbf0d9",
    },
    "dark": {
        "paper": "#14161a",
        "panel": "#1d2025",
        "ink": "#e8e8ea",
        "muted": "#a0a4ad",
        "rule": "#343840",
        "grid": "#262a31",
        "accent": "#ff7a85",
        "mark": "#3a3016",
    },
}
"""The colours of a page, without those of methods; each theme has the same names."""

ASYMMETRIC = ", asymmetric"
"""Ends the name of a method that is ranked by its margins: drawn hollow and dotted."""

ESTIMATES = ", estimates"
"""Ends the name of a method that is ranked by estimates: drawn hollow, with long dashes."""

_DOTTED = (1.5, 2.5)
_LONG_DASHES = (16, 3)


@dataclass(frozen=True)
class Look:
    """How one method is drawn.

    Attributes
    ----------
    light, dark : its colour in each theme
    mark : the outline of its mark as an SVG path, about 1 in radius
    dash : lengths of strokes and gaps; empty for a solid line
    width : width of its line, in pixels
    hollow : whether its mark is only an outline
    """

    light: str
    dark: str
    mark: str
    dash: tuple[float, ...] = ()
    width: float = 1.6
    hollow: bool = False


_CIRCLE = "M0.95,0A0.95,0.95,0,1,1,-0.95,0A0.95,0.95,0,1,1,0.95,0Z"
_SQUARE = "M-0.82,-0.82L0.82,-0.82L0.82,0.82L-0.82,0.82Z"
_DIAMOND = "M0,-1.2L1,0L0,1.2L-1,0Z"
_UP = "M0,-1.1L1.1,0.85L-1.1,0.85Z"
_DOWN = "M0,1.1L1.1,-0.85L-1.1,-0.85Z"
_LEFT = "M-1.1,0L0.85,-1.1L0.85,1.1Z"
_RIGHT = "M1.1,0L-0.85,-1.1L-0.85,1.1Z"
_PLUS = (
    "M-0.36,-1.1L0.36,-1.1L0.36,-0.36L1.1,-0.36L1.1,0.36L0.36,0.36L0.36,1.1L-0.36,1.1"
    "L-0.36,0.36L-1.1,0.36L-1.1,-0.36L-0.36,-0.36Z"
)
_TIMES = (
    "M0,-0.52L0.55,-1.07L1.07,-0.55L0.52,0L1.07,0.55L0.55,1.07L0,0.52L-0.55,1.07L-1.07,0.55"
    "L-0.52,0L-1.07,-0.55L-0.55,-1.07Z"
)
_STAR = (
    "M0,-1.35L0.36,-0.5L1.28,-0.42L0.58,0.19L0.79,1.09L0,0.61L-0.79,1.09L-0.58,0.19"
    "L-1.28,-0.42L-0.36,-0.5Z"
)
_SPARK = "M0,-1.4L0.42,-0.42L1.4,0L0.42,0.42L0,1.4L-0.42,0.42L-1.4,0L-0.42,-0.42Z"
_HEXAGON = "M-1.05,0L-0.52,-0.91L0.52,-0.91L1.05,0L0.52,0.91L-0.52,0.91Z"
_HOURGLASS = "M-0.9,-1.05L0.9,-1.05L0.28,0L0.9,1.05L-0.9,1.05L-0.28,0Z"
_BAR = "M-0.45,-1.2L0.45,-1.2L0.45,1.2L-0.45,1.2Z"
_PENTAGON = "M0,-1.1L1.05,-0.34L0.65,0.89L-0.65,0.89L-1.05,-0.34Z"
_BOWTIE = "M-1.05,-0.9L0,-0.28L1.05,-0.9L1.05,0.9L0,0.28L-1.05,0.9Z"

KNOWN = {
    "LSH": Look("#8f8ea3", "#9db0b7", _DOWN, (5, 3)),
    "KLSH": Look("#756c64", "#e8a884", _UP, (2, 2)),
    "SIKH": Look("#619f6d", "#5f8b03", _TIMES, (8, 2, 2, 2)),
    "PCAH": Look("#225b66", "#199f87", _PLUS, (4, 2)),
    "SpH": Look("#7f3ce2", "#db72d6", _HEXAGON, (10, 3)),
    "AGH": Look("#a7238a", "#ac427e", _RIGHT, (6, 2, 1, 2)),
    "DSH": Look("#d80c1d", "#fa4d5e", _CIRCLE, (), 2.8),
    "DSH contrast": Look("#d27a00", "#faca2a", _DIAMOND, (7, 2), 2.0),
    "ITQ": Look("#6688ff", "#799cff", _SQUARE, (12, 2), 1.8),
    "Refined(DSH)": Look("#15171c", "#f4f5fa", _STAR, (), 2.4),
    "Refined(ITQ)": Look("#1f00b7", "#9a56fd", _SPARK, (14, 2, 3, 2), 2.2),
    "signs": Look("#721d0c", "#a1f4a8", _BAR, (), 2.6),
    "faiss LSH": Look("#2f81b7", "#457eab", _LEFT, (3, 3)),
    "faiss PQ": Look("#087624", "#b5b624", _HOURGLASS, (9, 2, 1, 2, 1, 2)),
    "faiss OPQ": Look("#440452", "#5c691f", _PENTAGON, (9, 2, 3, 2)),
    "faiss RaBitQ": Look("#5b2779", "#dbaaf9", _BOWTIE, (3, 2, 6, 2)),
}
"""The looks of known methods."""

# For other names; those that differ most come first.
_OTHERS = [
    *("DSH", "Refined(ITQ)", "faiss PQ", "DSH contrast", "SpH", "ITQ", "PCAH", "AGH"),
    *("SIKH", "KLSH", "faiss LSH", "LSH", "faiss RaBitQ", "Refined(DSH)"),
    *("signs", "faiss OPQ"),
]


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """A look for each name: its own if the name is known, otherwise one that no other name has.

    Parameters
    ----------
    names : the methods in order of appearance; repeated names count once

    Returns
    -------
    the looks in the same order; with more than 32 names, looks repeat

    Examples
    --------
    >>> looks = looks_of(["ITQ", "ours", "ITQ, asymmetric", "ITQ"])
    >>> list(looks)
    ['ITQ', 'ours', 'ITQ, asymmetric']
    >>> looks["ITQ"].light == looks["ITQ, asymmetric"].light
    True
    >>> looks["ITQ"].hollow, looks["ITQ, asymmetric"].hollow
    (False, True)
    """
    found: dict[str, Look | None] = {name: _known(name) for name in names}
    taken = set(found.values())
    spare = [KNOWN[name] for name in _OTHERS]
    spare = [replace(look, width=1.8, dash=()) for look in spare if look not in taken]
    spare += [_asymmetric(look) for look in spare]
    spare = spare or [replace(KNOWN[name], dash=_DOTTED) for name in _OTHERS]
    looks, used = {}, 0
    for name, look in found.items():
        if look is None:
            look = spare[used % len(spare)]  # noqa: PLW2901
            used += 1
        looks[name] = look
    return looks


def _known(name: str) -> Look | None:
    if name in KNOWN:
        return KNOWN[name]
    for suffix, dash in ((ASYMMETRIC, _DOTTED), (ESTIMATES, _LONG_DASHES)):
        method = name.removesuffix(suffix)
        if name != method and method in KNOWN:
            return replace(KNOWN[method], hollow=True, dash=dash)
    return None


def _asymmetric(look: Look) -> Look:
    return replace(look, hollow=True, dash=_DOTTED)
