"""The metrics of a hub: what it counts of its members, and how that is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from prometheus_client import CollectorRegistry

from tests.metrics.cases import BEFORE, NOW
from tests.metrics.test_outlets import registry
from tests.metrics.test_view import printed
from tweed.hub.live.contribution import Contribution
from tweed.hub.live.replaying import NoLinks
from tweed.hub.live.tally import MOST, Tally
from tweed.hub.machine import Hub, Offer, Outcome, Payload, Ready, Task
from tweed.hub.wire.messages import Leave, OutcomeReason
from tweed.metrics.hub_snapshot import HubCounts, HubMember
from tweed.metrics.snapshot import Matrix
from tweed.metrics.tensorboard import scalars
from tweed.metrics.view import View

KEYS = [letter * 64 for letter in "abc"]
FAR = "it is farther from the others than those that count"


def hub(count: int) -> HubCounts:
    """Three members, of which one is away, another one rejected more and more."""
    up, down = 2_000_000 * count, 20_000_000 * count
    members = (
        HubMember(0, KEYS[0], "computes", 0.2, 10 * count, 0, 1, 5 * count, 2, 3.0, 10_000_000, down),
        HubMember(1, KEYS[1], "away", 4000.0, 7, 0, 0, 70, 12, 7.0, 10, 10),
        HubMember(2, KEYS[2], "sends", 75.0, rejected=4 * count, bytes_in=up, reason=FAR, score=12.3456),
    )
    refused = {"unlisted": 2, "expelled": 0}
    return HubCounts(1234 * count, 2, 3, 12_000_000 * count, down, members, refused)


def alone(up_s: float, count: int) -> Matrix:
    return Matrix("first", 100, 1, up_s, (replace(NOW.rows[0], up_s=up_s, links=()),), hub(count))


EARLIER, LATER = alone(10.0, 1), alone(12.0, 3)


def test_it_says_what_is_committed_what_crosses_and_who_is_turned_away() -> None:
    lines = printed(View(LATER, LATER.since(EARLIER))).splitlines()
    assert lines[0] == "first: a hub, up 12.0 s, process 100"
    assert lines[1] == "version 3,702, 1234.0 commits/s, 2 members, 1 away"
    assert lines[2] == "MB/s: 12.0 in, 20.0 out; in all 36.0 MB and 60.0 MB"
    assert lines[3] == "callers turned away: 2 unlisted"


def test_a_line_per_member_and_why_the_last_one_was_rejected() -> None:
    text = printed(View(LATER, LATER.since(EARLIER)))
    rows = [line.split() for line in text.splitlines()]
    heads = ["member", "key", "state", "last", "counted", "delay", "late", "rejected", "in", "out"]
    assert heads in rows
    assert ["0", "aaaaaaaa", "computes", "0", "s", "30", "0.5", "1", "0", "0", "20.0"] in rows
    assert ["1", "bbbbbbbb", "away", "1", "h", "7", "10.0", "0", "0", "0", "0"] in rows
    assert ["2", "cccccccc", "sends", "1", "min", "0", "0.0", "0", "12", "2.00", "0"] in rows
    assert f"Member 2, 12 rejected: {FAR} (score 12.3)." in " ".join(text.split())


@pytest.mark.parametrize("width", [50, 80, 120])
def test_it_fits_a_narrow_terminal(width: int) -> None:
    text = printed(View(LATER, LATER.since(EARLIER)), width)
    assert "…" not in text and max(map(len, text.splitlines())) <= width
    assert ("aaaaaaaa" in text) == (width >= 80)


def test_of_many_members_those_are_shown_that_contributed_last() -> None:
    many = tuple(HubMember(number, quiet_s=float(-number % 1000)) for number in range(1000))
    counts = replace(hub(1), members=many, known=1000, there=1000)
    text = printed(View(replace(LATER, hub=counts), replace(LATER, hub=counts)))
    firsts = [line.split()[0] for line in text.splitlines() if line.strip()]
    shown = [int(first) for first in firsts if first.isdecimal()]
    assert shown == [0, *range(977, 1000)]
    assert "976 more members are not shown." in text


def test_rates_of_links_are_shown_where_they_were_measured() -> None:
    measured = tuple(replace(one, up=1.5e6, down=None) for one in hub(1).members)
    now = replace(LATER, hub=replace(hub(1), members=measured))
    text = printed(View(now, now), 100)
    assert "up" in text and "1.50" in text and "up  " not in printed(View(now, now), 60)


def test_a_hub_of_a_group_is_shown_below_its_ranks() -> None:
    now = replace(NOW, hub=hub(3))
    text = printed(View(now, now.since(replace(BEFORE, hub=hub(1)))))
    assert text.index("from/to") < text.index("version 3,702") < text.index("aaaaaaaa")


def test_a_matrix_survives_its_way_and_one_of_an_older_version_has_no_hub() -> None:
    assert Matrix.from_json(LATER.to_json()) == LATER
    assert Matrix.from_json(NOW.to_json().replace(',"hub":null', "")) == NOW


def test_a_hub_that_began_anew_counts_from_zero() -> None:
    assert hub(1).since(hub(3)) == hub(1)
    assert hub(3).since(None) == hub(3)
    new = hub(3).since(replace(hub(1), members=()))
    assert new.members == hub(3).members and new.version == 2 * 1234


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("tweed_hub_commits_total", {}, 3702.0),
        ("tweed_hub_members", {}, 2.0),
        ("tweed_hub_refused_total", {"reason": "unlisted"}, 2.0),
        ("tweed_hub_member_info", {"member": "1", "key": KEYS[1]}, 1.0),
        ("tweed_hub_contributions_total", {"member": "2", "outcome": "rejected"}, 12.0),
        ("tweed_hub_bytes_total", {"member": "0", "direction": "out"}, 6e7),
        ("tweed_hub_delay_commits_total", {"member": "1"}, 70.0),
        ("tweed_hub_weight_total", {"member": "1"}, 7.0),
    ],
)
def test_prometheus_has_counters_of_hub_and_members(name: str, labels: dict[str, str], value: float) -> None:
    scraped: CollectorRegistry = registry(LATER)
    assert scraped.get_sample_value(name, labels) == value


def test_tensorboard_has_rates_of_the_hub() -> None:
    found = dict(scalars(LATER.since(EARLIER)))
    assert found["tweed_hub/commits_per_s"] == 1234.0 and found["tweed_hub/rejected_per_s"] == 4.0
    assert found["tweed_hub/mean_delay"] == 10 / (20 + 8)


# What is counted


def walked() -> tuple[Hub, Tally]:
    """A member that has contributed, one that is away and one that was late."""
    machine, tally = Hub(), Tally()
    machine.expect(2)
    for number in (0, 1):
        machine.handle(number, Ready(), 1.0)
        tally.told(number, Task(1, 0), 100)
    machine.handle(0, Offer(1, 8), 2.0)
    machine.handle(0, Payload(1, torch.ones(2)), 3.0)
    machine.handle(1, Leave(), 3.0)
    tally.came(0, 8)
    for _ in range(2):  # as after a link that broke
        tally.told(1, Outcome(1, OutcomeReason.LATE), 0)
    tally.committed([Contribution(0, 1, 2, 0.5, "well"), Contribution(1, 1, 4, 0.0, FAR, 7.0)], 3.0)
    tally.committed([Contribution(0, 2, 1, None, "")], 4.0)
    return machine, tally


def test_each_member_is_counted() -> None:
    machine, tally = walked()
    first, second, third = tally.snapshot(machine, NoLinks(), 5.0).members
    assert (first.counted, first.rejected, first.weight) == (2, 0, 0.5)
    assert (first.delay, first.longest_delay) == (3, 2)
    assert (first.bytes_in, first.bytes_out, first.quiet_s, first.state) == (8, 100, 1.0, "computes")
    assert (second.counted, second.rejected, second.reason, second.score) == (0, 1, FAR, 7.0)
    assert (second.late, second.state, second.quiet_s) == (1, "away", 2.0)
    assert (third.quiet_s, third.state) == (None, "away")


def test_a_snapshot_is_a_copy_and_has_the_totals() -> None:
    machine, tally = walked()
    before = tally.snapshot(machine, NoLinks(), 5.0)
    tally.came(0, 10)
    assert before.members[0].bytes_in == 8 and before.bytes_in == 8 and before.bytes_out == 200
    assert (before.version, before.there, before.known) == (1, 1, 3)


def test_of_very_many_members_those_are_told_that_contributed_last() -> None:
    machine, tally = Hub(), Tally()
    for number in range(MOST + 10):
        machine.handle(number, Ready(), 0.0)
        tally.committed([Contribution(number, 1, 0, 1.0, "")], float(number))
    found = tally.snapshot(machine, NoLinks(), 999.0)
    assert [one.number for one in found.members] == list(range(10, MOST + 10))
    assert found.known == MOST + 10
