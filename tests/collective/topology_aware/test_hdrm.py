"""Halving-doubling with rank mapping."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from tests.collective.topology_aware.times import times
from tweed.collective import Schedule, build, topology
from tweed.collective.topology import Topology


def most_on_a_link(schedule: Schedule) -> int:
    """How many messages at most cross one link in one step."""
    messages = {(send.step, send.src, *send.route, send.dst) for send in schedule.sends}
    return max(Counter((step, hop) for step, *nodes in messages for hop in pairwise(nodes)).values())


@pytest.mark.parametrize(("hosts", "switches"), [(1, 8), (2, 8), (4, 8), (4, 16), (1, 2)])
def test_no_two_messages_of_a_step_share_a_link(hosts: int, switches: int) -> None:
    schedule = build("all_reduce", "hdrm", topology.bigraph(hosts, switches))
    assert most_on_a_link(schedule) == 1


def test_where_a_switch_has_more_hosts_than_links_they_share_them_evenly() -> None:
    assert most_on_a_link(build("all_reduce", "hdrm", topology.bigraph(8, 8))) == 2


def test_switches_may_be_numbered_in_any_order() -> None:
    mixed = {node: node if node < 32 else 32 + (node - 32) * 3 % 8 for node in range(40)}
    links = [(mixed[a], mixed[b], *rest) for a, b, *rest in topology.bigraph(4, 8).links]
    assert most_on_a_link(build("all_reduce", "hdrm", Topology(32, links))) == 1


def test_it_is_as_fast_as_a_ring_and_takes_few_steps() -> None:
    network = topology.bigraph(4, 8)
    assert times("hdrm", network) == pytest.approx(2 * (1 - 1 / 32), rel=0.01)
    assert build("all_reduce", "hdrm", network).cost(1).steps == 10
    assert times("hdrm", network, numbytes=1 << 10) < times("ring", network, numbytes=1 << 10) / 4
