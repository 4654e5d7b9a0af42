"""What links have counted, read and checked: pure."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.testbed import Counters, findings
from tweed.testbed.counters import ASIDE_BYTES, link, losses, overflows

DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     500       5    0    0    0     0          0         0      500       5    0    0    0     0       0          0
tweed0:  7000      70    0    0    0     0          0         0      9000      90    0    0    0     0       0          0
"""  # noqa: E501

QDISCS = json.dumps(
    [
        {"kind": "tbf", "dev": "rank0", "drops": 3, "bytes": 10},
        {"kind": "noqueue", "dev": "hub", "drops": 9},
        {"kind": "tbf", "dev": "rank1", "drops": 0},
    ]
)


def test_link_is_that_of_the_testbed() -> None:
    expected = Counters(sent_bytes=9000, received_bytes=7000, sent_packets=90, received_packets=70)
    assert link(DEV) == expected


def test_overflows_are_those_of_the_token_buckets() -> None:
    assert overflows(QDISCS) == {"rank0": 3, "rank1": 0}


def test_losses_are_by_sender() -> None:
    told = [{"metainfo": {}}, {"counter": {"name": "lost1", "packets": 4, "bytes": 1}}]
    assert losses(json.dumps({"nftables": told}), 3) == [0, 4, 0]


def test_counters_add_and_subtract() -> None:
    one, more = Counters(1, 2, 3, 4, 5, 6), Counters(10, 20, 30, 40, 50, 60)
    assert one + more - one == more


def check(payload: int, link: Counters) -> list[str]:
    return findings({"rank 0": payload}, {"rank 0": link})


@given(
    st.integers(0, 10**12), st.floats(0, 0.25), st.integers(0, ASIDE_BYTES), st.integers(0, 10**9), st.data()
)
def test_headers_acks_retransmissions_and_some_talk_beside_are_fine(
    payload: int, again: float, aside: int, received: int, data: st.DataObject
) -> None:
    acks = data.draw(st.integers(0, received))
    sent = int(payload * (1 + 66 / 1448) * (1 + again)) + aside + acks * 66
    assert check(payload, Counters(sent_bytes=sent, received_packets=received)) == []


@given(st.integers(1, 10**12), st.data())
def test_a_byte_that_went_round_is_found(payload: int, data: st.DataObject) -> None:
    sent = data.draw(st.integers(0, payload - 1))
    (finding,) = check(payload, Counters(sent_bytes=sent, received_packets=10**6))
    assert finding.startswith("rank 0: ")
    assert finding.endswith("The rest went round them")


@given(st.integers(0, 10**12))
def test_what_nothing_explains_is_found(payload: int) -> None:
    (finding,) = check(payload, Counters(sent_bytes=2 * payload + 2 * ASIDE_BYTES))
    assert "are explained" in finding


def test_each_rank_is_named() -> None:
    counted = {f"rank {rank}": Counters(sent_bytes=sent) for rank, sent in enumerate((100, 99, 100))}
    assert [found[:7] for found in findings(dict.fromkeys(counted, 100), counted)] == ["rank 1:"]


def test_a_missing_counter_is_an_error() -> None:
    with pytest.raises(KeyError):
        findings({"rank 0": 1}, {})
