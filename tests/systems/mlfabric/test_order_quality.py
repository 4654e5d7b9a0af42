"""An order is compared with the best that there is."""

from __future__ import annotations

from tweed.order import BoundedDelay, FirstIn, ShortestFirst
from tweed.systems.mlfabric.order_quality import _best, _walked, compared


def test_the_best_of_three_by_hand() -> None:
    # Sizes 5, 1, 3; the first must be the first: 5, 6, 9.
    jobs = [(5, 0), (1, 2), (3, 2)]
    assert _best(jobs) == 20 / 3
    assert _walked(BoundedDelay(0), jobs) == (20 / 3, 0)
    assert _walked(ShortestFirst(), jobs) == ((1 + 4 + 9) / 3, 1)
    assert _walked(FirstIn(), jobs) == ((5 + 6 + 9) / 3, 0)
    assert _best([(1, 0), (2, 0)]) is None


def test_the_bounded_delay_is_the_best_and_first_in_is_not() -> None:
    found = compared(30, seed=3)
    assert found["batches"] > 20
    assert found["bounded"] == {"mean": 1.0, "most": 1.0, "late": 0}
    assert found["first in"]["mean"] > 1.05 and found["first in"]["late"] > 0
