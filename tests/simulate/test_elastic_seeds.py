"""Short runs of many seeds are right, and what is wrong in one is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.simulate.elastic_seeds import verified
from tests.simulate.test_elastic import trained
from tweed.data.sampler import Deal
from tweed.simulate import elastic
from tweed.testbed.faults import Plan


def test_seeds_of_all_faults() -> None:
    report = verified(range(100))
    assert report.wrong == {}
    came = ("kill", "stop", "cut", "evicted", "taken", "anew")
    assert all(report.totals[what] > 20 for what in came), report.totals


def test_samples_of_lost_members_that_nobody_computes_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_orphans(deal: Deal, survivors: Sequence[str]) -> Deal:
        return replace(deal, shares=tuple((member, deal.share(member)) for member in survivors))

    monkeypatch.setattr(Deal, "again", without_orphans)
    wrong = verified(range(20)).wrong
    assert wrong and all("samples are lost or doubled" in text for text in wrong.values()), wrong


def test_who_does_not_come_back_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic._Members, "restart", lambda members, key: None)
    with pytest.raises(AssertionError, match="of 3 members 2 are in"):
        trained(Plan.parse("after 1 step kill 1"), steps=3, members=3)


def test_an_epoch_that_is_agreed_twice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    tick = elastic._Members.tick

    def with_another(members: elastic._Members) -> None:
        members.epochs[2] = (2, [("somebody", 1)], [], [], 0, True)
        tick(members)

    monkeypatch.setattr(elastic._Members, "tick", with_another)
    with pytest.raises(AssertionError, match="an epoch is agreed twice"):
        trained(Plan.parse("after 1 step kill 1"), steps=3, members=3)
