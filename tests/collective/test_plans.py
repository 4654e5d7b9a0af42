"""Plans: every size is covered, text goes round, and ranks that differ notice."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import partial

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
    first = [("all_reduce", 32 * 1024, "exchange"), ("all_reduce", None, "pairwise")]
    assert [(name, end, schedule.name) for name, end, schedule, *_ in rows][:2] == first
    assert all(schedule.collective == name and schedule.ranks == 4 for name, _, schedule, *_ in rows)


def test_the_same_plan_is_made_twice() -> None:
    assert plan(4, ONE_HOST) == plan(4, ONE_HOST) and hash(plan(4, ONE_HOST))


def test_overrules_hold_for_every_size() -> None:
    made = plan(4, NETWORK, {"all_reduce": "ring"})
    assert {pick.builder for pick in made.picks if pick.collective == "all_reduce"} == {"ring"}
    assert made.picks[0].why == "asked for by name"


OTHER_TEXT = ("", "[]", "{}", json.dumps(topology.plain(topology.line(2))), '{"format": 2, "picks": [{}]}')
NEW = json.dumps(json.loads(plan(2, ONE_HOST).to_json()) | {"format": 9})
FOREIGN = dataclasses.replace(plan(4, ONE_HOST).picks[0], digest="0" * 16)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: plan(4, NETWORK, {"allreduce": "ring"}),
            "cannot overrule 'allreduce'; there are all_reduce",
        ),
        (lambda: plan(4, NETWORK, {"gather": "ring"}), "no builder 'ring' for gather"),
        (lambda: plan(4, NETWORK, {"all_to_all": "star"}), "'star' hands parts of an all_to_all on"),
        (lambda: Plan(4, (FOREIGN,)).rows(), "builder 'exchange' makes another all_reduce here"),
        (lambda: Plan.from_json(NEW), "the plan has format 9, this tweed reads 2"),
        (lambda: plan(2, ONE_HOST).pick("all_sort", 10), "no row for 'all_sort'"),
        *((partial(Plan.from_json, text), "this is not a plan") for text in OTHER_TEXT),
    ],
)
def test_what_is_wrong_is_refused_in_words(call: Callable[[], object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        call()
