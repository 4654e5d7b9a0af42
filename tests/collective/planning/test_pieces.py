"""How short pieces are, by what the links carry."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.collective import NETWORK, ONE_HOST, Links, Plan, plan
from tweed.collective.planning.plans import piece_bytes
from tweed.errors import UsageError

SLOW = Links(latency_s=1e-3, bandwidth=2.5e6)


@given(st.floats(1.0, 1e11))
def test_a_piece_takes_some_milliseconds_of_a_slow_link(bandwidth: float) -> None:
    short = piece_bytes(Links(1e-3, bandwidth))
    if short is None:
        assert bandwidth > 80e6
    else:
        assert 8 << 10 <= short <= 128 << 10 and short & (short - 1) == 0
        assert short == 8 << 10 or 1.5e-3 <= short / bandwidth <= 3e-3


def test_plans_for_slow_links_say_how_short_pieces_are_and_no_others_do() -> None:
    made = plan(4, SLOW)
    assert {pick.piece_bytes for pick in made.picks} == {8 << 10} == {row[4] for row in made.rows()}
    assert Plan.from_json(made.to_json()) == made
    for links in (NETWORK, ONE_HOST):
        assert "piece_bytes" not in plan(4, links).to_json()


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "many"])
def test_a_plan_with_pieces_of_a_wrong_length_is_refused(wrong: object) -> None:
    fields = json.loads(plan(4, SLOW).to_json())
    fields["picks"][0]["piece_bytes"] = wrong
    with pytest.raises(UsageError, match="piece_bytes"):
        Plan.from_json(json.dumps(fields))
