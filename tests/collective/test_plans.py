"""Plans: every size is covered, text goes round, and ranks that differ notice."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collective.test_chooser import some_links
from tweed.collective import COLLECTIVES, NETWORK, ONE_HOST, Links, Plan, choose, plan, topology
from tweed.errors import UsageError


@given(ranks=st.integers(1, 20), links=some_links)
def test_a_plan_covers_every_size_once(ranks: int, links: Links) -> None:
    made = plan(ranks, links)
    for collective in COLLECTIVES:
        ends = [pick.up_to_bytes for pick in made.picks if pick.collective == collective]
        sizes = [end for end in ends if end is not None]
        assert ends[-1] is None and len(sizes) == len(ends) - 1
        assert sizes == sorted(set(sizes))
    order = [pick.collective for pick in made.picks]
    assert order == sorted(order, key=COLLECTIVES.index)


@given(ranks=st.integers(1, 20), links=some_links, power=st.integers(8, 32))
def test_a_plan_is_what_the_chooser_says(ranks: int, links: Links, power: int) -> None:
    for collective in COLLECTIVES:
        pick = plan(ranks, links).pick(collective, 1 << power)
        assert pick.builder == choose(collective, 1 << power, ranks, links).builder


@given(ranks=st.integers(1, 12), links=some_links)
def test_text_goes_round(ranks: int, links: Links) -> None:
    made = plan(ranks, links)
    back = Plan.from_json(made.to_json())
    assert back == made and back.to_json() == made.to_json()
    assert back.rows() == made.rows()


def test_rows_are_what_the_engine_takes() -> None:
    rows = plan(4, ONE_HOST).rows()
    assert [(name, end, schedule.name) for name, end, schedule in rows][:2] == [
        ("all_reduce", 32 * 1024, "exchange"),
        ("all_reduce", None, "pairwise"),
    ]
    assert all(schedule.collective == name and schedule.ranks == 4 for name, _, schedule in rows)


def test_the_same_plan_is_made_twice() -> None:
    assert plan(4, ONE_HOST) == plan(4, ONE_HOST) and hash(plan(4, ONE_HOST))


def test_overrules_hold_for_every_size() -> None:
    made = plan(4, NETWORK, {"all_reduce": "ring"})
    assert {pick.builder for pick in made.picks if pick.collective == "all_reduce"} == {"ring"}
    assert made.picks[0].why == "asked for by name"
    with pytest.raises(UsageError, match="cannot overrule 'allreduce'; there are all_reduce"):
        plan(4, NETWORK, {"allreduce": "ring"})
    with pytest.raises(UsageError, match="no builder 'ring' for gather"):
        plan(4, NETWORK, {"gather": "ring"})


def test_a_plan_hands_no_parts_on() -> None:
    with pytest.raises(UsageError, match="builder 'star' hands parts of an all_to_all on"):
        plan(4, NETWORK, {"all_to_all": "star"})


def test_a_rank_that_builds_something_else_notices() -> None:
    made = plan(4, ONE_HOST)
    foreign = dataclasses.replace(made.picks[0], digest="0" * 16)
    with pytest.raises(UsageError, match="builder 'exchange' makes another all_reduce here"):
        Plan(4, (foreign,)).rows()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        json.dumps(topology.plain(topology.line(2))),
        '{"format": 2, "ranks": 2, "picks": [{"builder": "ring"}]}',
    ],
)
def test_other_text_is_not_a_plan(text: str) -> None:
    with pytest.raises(UsageError, match="this is not a plan"):
        Plan.from_json(text)


def test_another_format_is_refused() -> None:
    fields = json.loads(plan(2, ONE_HOST).to_json())
    with pytest.raises(UsageError, match="the plan has format 9, this tweed reads 2"):
        Plan.from_json(json.dumps({**fields, "format": 9}))


def test_a_size_without_a_row_is_named() -> None:
    with pytest.raises(UsageError, match="no row for 'all_sort'"):
        plan(2, ONE_HOST).pick("all_sort", 10)
