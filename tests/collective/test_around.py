"""Schedules that do without links: proven for what is left, and the same from text."""

from __future__ import annotations

import itertools
import json

import pytest

from tweed.collective import NETWORK, Plan, plan
from tweed.collective.around import choices, in_flight_bytes, is_direct, network
from tweed.collective.chooser import Links
from tweed.collective.table import COLLECTIVES, build
from tweed.errors import UsageError

SUMS = ("all_reduce", "reduce_scatter", "all_gather")
MISSING = {
    "two of 4": (4, [(2, 3)]),
    "two of 3": (3, [(1, 2)]),
    "rank 0 is one of them": (3, [(0, 2)]),
    "three of 6": (6, list(itertools.combinations((1, 3, 5), 2))),
    "all but one of 5": (5, list(itertools.combinations((0, 1, 3, 4), 2))),
    "the other way round": (4, [(3, 2)]),
}


@pytest.mark.parametrize("case", MISSING)
def test_no_send_of_a_sum_needs_a_link_that_is_missing(case: str) -> None:
    ranks, missing = MISSING[case]
    gone = {frozenset(pair) for pair in missing}
    made = plan(ranks, NETWORK, missing=missing)
    for collective, _, schedule, *_ in made.rows():
        if collective in SUMS:
            assert is_direct(schedule)
            assert not any(frozenset((send.src, send.dst)) in gone for send in schedule)
    assert {pick.collective for pick in made.picks} == set(COLLECTIVES)
    assert Plan.from_json(made.to_json()) == made
    assert Plan.from_json(made.to_json()).rows() == made.rows()


def test_what_is_missing_costs_no_bytes_where_a_ring_goes_round_it() -> None:
    made = plan(4, NETWORK, missing=[(2, 3)])
    assert made.pick("all_reduce", 25 << 20).builder == "ring"
    ring = build("all_reduce", "ring", network(4, NETWORK, [(2, 3)]))
    assert str(ring.cost(1 << 20)) == str(build("all_reduce", "ring", 4).cost(1 << 20))


def test_of_three_the_one_in_the_middle_carries_two_buffers_each_way() -> None:
    made = plan(3, NETWORK, missing=[(1, 2)])
    numbytes = 25 << 20
    (schedule,) = [
        schedule
        for collective, most, schedule, *_ in made.rows()
        if collective == "all_reduce" and (most is None or most >= numbytes)
    ][:1]
    received = sum(numbytes / schedule.chunks for send in schedule if send.dst == 0)
    assert received == pytest.approx(2 * numbytes)


@pytest.mark.parametrize(("latency_s", "most"), [(0.0, 324_644), (0.05, 1_574_644)])
def test_who_sends_to_the_middle_is_no_further_ahead_than_fills_its_port(latency_s: float, most: int) -> None:
    links = Links(latency_s, 12.5e6)
    pick = plan(3, links, missing=[(1, 2)]).pick("all_reduce", 25 << 20)
    assert (pick.builder, pick.in_flight_bytes) == ("star", most)


@pytest.mark.parametrize(
    ("collective", "builder"),
    [
        ("all_reduce", "ring"),
        ("all_reduce", "binomial_tree"),
        ("reduce_scatter", "multitree"),
        ("all_gather", "star"),
    ],
)
def test_where_no_sum_of_several_leaves_in_the_next_step_any_number_may_be_in_flight(
    collective: str, builder: str
) -> None:
    left = network(4, NETWORK, [(2, 3)])
    assert in_flight_bytes(build(collective, builder, left), NETWORK) is None


@pytest.mark.parametrize("wrong", [0, -1, "64", 1.5])
def test_a_plan_in_which_a_wrong_number_may_be_in_flight_is_refused(wrong: object) -> None:
    fields = json.loads(plan(3, NETWORK, missing=[(1, 2)]).to_json())
    assert fields["picks"][0]["in_flight_bytes"] > 0 and "in_flight_bytes" not in fields["picks"][-1]
    fields["picks"][0]["in_flight_bytes"] = wrong
    with pytest.raises(UsageError, match="this is not a plan"):
        Plan.from_json(json.dumps(fields))


def test_two_that_are_not_linked_have_a_plan_of_a_network_where_all_are() -> None:
    made = plan(2, NETWORK, missing=[(0, 1)])
    assert made == plan(2, NETWORK)
    assert Plan.from_json(made.to_json()) == made


def test_nothing_is_found_where_every_pair_is_needed() -> None:
    left = network(4, NETWORK, [(2, 3)])
    assert choices("all_to_all", [1024], left, NETWORK) == []
    assert choices("broadcast", [1024], left, NETWORK) == []
    # Of two ranks nobody is left to go through.
    pieces = network(3, NETWORK, [(0, 1), (1, 2)])
    assert choices("all_gather", [1024], pieces, NETWORK) == []


def test_what_was_asked_for_by_name_is_taken() -> None:
    made = plan(4, NETWORK, {"all_reduce": "pairwise"}, missing=[(2, 3)])
    assert {pick.builder for pick in made.picks if pick.collective == "all_reduce"} == {"pairwise"}
