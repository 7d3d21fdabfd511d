"""What the kinds of index share: one interface.

A kind decides where rows lie, and which of them a query visits. A sketch decides what is kept of a
row, and how rows are ranked by it: see :mod:`densehash.index.sketches`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from densehash.index.queries import Question
from densehash.index.segment import Segment
from densehash.index.visits import Visits
from densehash.rows import Floats, Rows

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11 on

__all__ = ["Kind"]


class Kind(ABC):
    """How rows are laid out, and which of them a query visits.

    A kind holds what all segments of an index share; each segment has its own arrays. A new kind is
    a class in a file of its own and a word in :mod:`densehash.choices`.
    """

    name: ClassVar[str]
    has_groups: ClassVar[bool] = False
    """Whether rows lie in groups: :meth:`labels` says in which."""
    extra_names: ClassVar[tuple[str, ...]] = ()
    """Names of the arrays that a segment has because of its kind."""
    options: ClassVar[tuple[str, ...]] = ()
    """Names of the options of :meth:`learn`, which users give when they build an index."""
    takes_probes: ClassVar[bool] = False
    """Whether a search may have ``probes``."""
    probes_by_margins: ClassVar[bool] = False
    """Whether ``probes`` needs margins, which say what is visited."""

    # --- made ---------------------------------------------------------------------------------

    @classmethod
    def learn(
        cls,
        rows: Rows,  # noqa: ARG003
        options: Mapping[str, int],  # noqa: ARG003
        *,
        n_bits: int,  # noqa: ARG003
        random_state: int | RandomState | None,  # noqa: ARG003
        for_products: bool = False,  # noqa: ARG003
    ) -> Self:
        """The kind that suits rows.

        Parameters
        ----------
        rows : the rows of the index, as they are hashed
        options : options that were given, with the names in ``options``
        n_bits : bits that are kept of a row
        random_state : seed or generator for what is learnt
        for_products : whether queries look for large inner products instead of near rows
        """
        return cls()

    @classmethod
    def from_settings(
        cls,
        settings: Mapping[str, Any],  # noqa: ARG003
        *,
        n_bits: int,  # noqa: ARG003
        n_features: int,  # noqa: ARG003
    ) -> Self:
        """The kind from what :meth:`settings` has written to a file; checked."""
        return cls()

    def settings(self) -> Mapping[str, Any]:
        """What a file keeps of the kind itself: numbers and arrays by name."""
        return {}

    # --- rows ---------------------------------------------------------------------------------

    def labels(self, block: Floats) -> NDArray[np.integer] | None:  # noqa: ARG002
        """The group of each row of a block, (b,); None if the kind has no groups."""
        return None

    def forget(self) -> None:  # noqa: B027
        """Free what only new rows need; it is made again for the next ones."""

    def arrange(self, labels: NDArray[np.integer] | None) -> NDArray[np.uint32] | None:  # noqa: ARG002
        """The rank of the row at each position, (n,); None keeps the order of ranks.

        Parameters
        ----------
        labels : the group of each row, by rank; None if the kind has no groups
        """
        return None

    def own_arrays(
        self,
        columns: Mapping[str, NDArray[Any]],  # noqa: ARG002
        labels: NDArray[np.integer] | None,  # noqa: ARG002
        ranks: NDArray[np.uint32] | None,  # noqa: ARG002
    ) -> dict[str, NDArray[Any]]:
        """The arrays that a segment has because of its kind.

        Parameters
        ----------
        columns : what is kept of rows, by position
        labels : the group of each row, by rank; None if the kind has no groups
        ranks : what :meth:`arrange` returned
        """
        return {}

    def labels_of(self, segment: Segment) -> NDArray[np.integer] | None:  # noqa: ARG002
        """The group at each position of a segment, (n,); None if the kind has no groups."""
        return None

    def check_extra(self, extra: Mapping[str, NDArray[Any]], n_rows: int) -> None:  # noqa: B027
        """Refuse arrays from a file that do not fit a segment of so many rows."""

    # --- queries ------------------------------------------------------------------------------

    @property
    def numbers_a_query(self) -> int:
        """How many numbers the kind computes for a query, not counting candidates."""
        return 0

    @abstractmethod
    def visits(self, segment: Segment, asked: Question) -> Visits:
        """The rows of a segment that queries look at."""

    def visits_for_all(self, segment: Segment) -> Visits:  # noqa: ARG002
        """The rows to look at if no near row may be missed, as in a search by radius."""
        return None

    def probes_to_try(self) -> list[int | None]:
        """Numbers of probes that tuning tries, the fewest first; None: the default."""
        return [None]
