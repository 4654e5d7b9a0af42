"""Plans: contiguous groups, never slower than direct as estimated; and what they rest on, measured rates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.hub.machine.grouping import Candidate, Group, Pending, model_sources, quickest_grouping
from tweed.hub.machine.rates import Rates, SharedLink


def alike(count: int) -> list[Pending]:
    return [Pending(member, 100, 10.0) for member in range(count)]


def test_without_an_aggregator_all_go_directly() -> None:
    found = quickest_grouping(alike(5), [], 10.0)
    assert found.groups == (Group(None, 0, 5),) and found.seconds == 50.0 and found.hub_bytes == 500


def test_nine_alike_at_two_aggregators() -> None:
    """After 30 s the link is free, and three are gathered at each; then each sum takes 10 s."""
    found = quickest_grouping(alike(9), [Candidate(50, 10.0, 10.0), Candidate(51, 10.0, 10.0)], 10.0)
    assert found.groups == (Group(None, 0, 3), Group(50, 3, 6), Group(51, 6, 9))
    assert found.seconds == 50.0 and found.hub_bytes == 500


def test_with_many_aggregators_the_time_grows_as_the_root() -> None:
    """n transfers go in the time of d direct ones and g sums, where d + (d + 1) + ... is n."""
    candidates = [Candidate(100 + one, 10.0, 10.0) for one in range(30)]
    found = quickest_grouping(alike(30), candidates, 10.0)
    assert found.seconds <= 90.0  # against 300


def test_a_sum_that_is_larger_than_its_parts_is_worth_it_only_if_there_are_many() -> None:
    candidate = [Candidate(9, 10.0, 10.0)]
    assert len(quickest_grouping(alike(4), candidate, 10.0, sum_bytes=400).groups) == 1
    assert len(quickest_grouping(alike(12), candidate, 10.0, sum_bytes=400).groups) == 2


def test_what_an_aggregator_sends_itself_need_not_move() -> None:
    slow = [Pending(0, 100, 10.0), Pending(1, 100, 0.1), Pending(2, 100, 10.0)]
    found = quickest_grouping(slow, [Candidate(1, 10.0, 10.0)], 10.0)
    assert found.groups == (Group(None, 0, 1), Group(1, 1, 3)) and found.seconds == 20.0


def test_so_many_get_the_model_from_the_hub_that_the_last_one_has_it_soonest() -> None:
    """Of 30, by a link of 10 each: g from the hub, and (30 - g) / g from each of them."""
    candidates = [Candidate(one, 10.0, 10.0) for one in range(30)]
    assert model_sources(30, candidates, 10.0) == 5  # 5 + 5 models long
    assert model_sources(2, candidates, 10.0) == 0  # one after the other is as quick as both from the hub
    assert model_sources(30, [Candidate(1, 0.1, 10.0)], 10.0) == 0


_rates = st.integers(1, 50).map(float)
_pending = st.lists(st.tuples(st.integers(1, 500), _rates), min_size=1, max_size=14)
_candidates = st.lists(st.tuples(_rates, _rates), max_size=5)


@given(_pending, _candidates, _rates)
def test_groups_are_contiguous_and_never_slower_than_direct(
    sizes: list[tuple[int, float]], links: list[tuple[float, float]], hub_rate: float
) -> None:
    pending = [Pending(member, *one) for member, one in enumerate(sizes)]
    candidates = [Candidate(100 + member, *one) for member, one in enumerate(links)]
    found, direct = quickest_grouping(pending, candidates, hub_rate), quickest_grouping(pending, [], hub_rate)
    assert found.seconds <= direct.seconds and found.hub_bytes <= direct.hub_bytes
    assert found.groups[0].aggregator is None and found.groups[0].end > 0
    assert [one.begin for one in found.groups[1:]] == [one.end for one in found.groups[:-1]]
    assert found.groups[-1].end == len(pending)
    used = [one.aggregator for one in found.groups if one.aggregator is not None]
    assert len(set(used)) == len(used)


class Looked(list[Pending]):
    """Counts how often somebody looks at one."""

    count = 0

    def __getitem__(self, place: Any) -> Any:
        self.count += 1
        return super().__getitem__(place)


def test_a_plan_for_a_hundred_updates_and_thirty_hosts_looks_at_each_a_hundred_times_at_most() -> None:
    pending = Looked(Pending(one % 30, 1_000_000, 1e6 + 1e4 * one) for one in range(100))
    quickest_grouping(pending, [Candidate(one, 1e6, 1e6) for one in range(30)], 1e6)
    assert 100 < pending.count < 100 * 100


def test_a_fair_share_is_that_of_all_that_came_together() -> None:
    link = SharedLink()
    assert link.arrived(100, 0.0, 10.0, [0.0]) == pytest.approx(5.0)  # of what is known by then
    assert link.arrived(100, 0.0, 10.0, []) == pytest.approx(10.0)  # 20 a second, two transfers
    assert link.rate == 20.0


def test_who_has_its_share_is_not_slow_and_who_has_less_is() -> None:
    rates = Rates()
    for at in (0.0, 10.0, 20.0):  # three alike fill a link of 30
        for member in range(3):
            rates.at_hub(member, 100, at, at + 10.0, [at] * (2 - member))
    assert not rates.up and rates.hub.rate == pytest.approx(30.0, rel=0.1)
    rates.at_hub(1, 100, 30.0, 130.0, [])
    assert rates.up == {1: 1.0} and rates.up_rate(0) == rates.hub.rate
    assert [one.member for one in rates.candidates(range(9), 9)] == [0, 2]
    rates.at_hub(1, 100, 140.0, 144.0, [])
    assert not rates.up


def test_what_comes_to_an_aggregator_shows_who_is_slow() -> None:
    rates = Rates()
    rates.gathered(9, [(0, 100, 3.0), (1, 100, 3.0), (2, 100, 30.0), (9, 100, 0.0)])
    assert rates.up == {2: pytest.approx(100 / 30)}


def test_a_member_whose_model_comes_slowly_is_no_aggregator() -> None:
    rates = Rates()
    for member in range(3):
        rates.at_hub(member, 100, 0.0, 1.0, [])
        rates.received(member, 100, 10.0 * member, 10.0 * member + (20.0 if member == 1 else 1.0), [])
    assert [one.member for one in rates.candidates(range(3), 3)] == [0, 2]


def test_nobody_who_was_not_measured_is_an_aggregator() -> None:
    rates = Rates()
    rates.at_hub(4, 100, 0.0, 1.0, [])
    assert [one.member for one in rates.candidates(range(9), 3)] == [4]
