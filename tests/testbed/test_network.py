"""What a network is like, and the commands that build it: pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.errors import UsageError
from tweed.testbed import Network
from tweed.testbed.names import HUB, MOST_RANKS
from tweed.testbed.star import commands

networks = st.builds(
    Network,
    rate_bits=st.none() | st.integers(10**4, 10**11),
    loss=st.integers(0, 10**6 - 1).map(lambda ppm: ppm / 10**6),
    congestion=st.sampled_from(["cubic", "bbr", "reno"]),
)


@given(networks)
def test_what_is_written_is_read_again(network: Network) -> None:
    assert Network.parse(str(network)) == network


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("rate=100mbit,loss=0.1%", Network(rate_bits=100e6, loss=0.001)),
        ("rate=1gbit", Network(rate_bits=1e9)),
        ("rate=2.5Gbit/s , congestion=bbr", Network(rate_bits=2.5e9, congestion="bbr")),
        ("loss=0.01", Network(loss=0.01)),
        ("congestion=cubic", Network()),
    ],
)
def test_reads(text: str, network: Network) -> None:
    assert Network.parse(text) == network


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the keys are rate, queue, delay, rtt, jitter, loss,"),
        ("rate", "cannot read 'rate'"),
        ("latency=10ms", "cannot read 'latency=10ms' of a network: the keys are"),
        ("rate=100", "a rate has a unit, gbit, mbit, kbit, bit"),
        ("rate=fastmbit", "cannot read the number in 'fastmbit'"),
        ("rate=-1mbit", "between 10kbit and 100gbit"),
        ("rate=nanmbit", "cannot read the number"),
        ("rate=1tbit", "cannot read the number in '1tbit'"),
        ("loss=100%", "not at least 0 and below 1"),
        ("loss=-1%", "not at least 0 and below 1"),
        ("loss=0.00001%", "too small"),
        ("loss=some", "cannot read the number in 'some'"),
        ("loss=1%,loss=2%", "loss is there twice"),
        ("congestion=../x", "no name of a congestion control"),
    ],
)
def test_wrong_networks_are_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        Network.parse(text)
    assert words in str(caught.value)


def test_words_for_people() -> None:
    assert Network.parse("rate=100mbit,loss=0.1%").words == (
        "100 Mbit/s per worker, 0.1 % of packets lost, cubic"
    )
    assert Network().words == "not slowed, no loss, cubic"
    assert Network(rate_bits=2.5e9).words.startswith("2.5 Gbit/s")


def of(network: Network, place: int, program: str) -> list[str]:
    found = [command for command in commands(network, [11, 12, 13]) if command.words[0] == program]
    return [" ".join(command.words) + "\n" + command.text for command in found if command.place == place]


def test_rate_is_set_at_both_ends_of_every_pair() -> None:
    network = Network(rate_bits=100e6)
    (hub,) = of(network, HUB, "tc")
    assert hub.count("root tbf rate 100000000bit burst 12500 limit 637500") == 3
    assert all("dev tweed0 root tbf rate 100000000bit" in of(network, rank, "tc")[0] for rank in range(3))


def test_a_slow_link_still_takes_two_packets_at_once() -> None:
    assert "burst 4096" in of(Network(rate_bits=1e6), 0, "tc")[0]


def test_offloads_are_off_at_both_ends_only_where_packets_are_lost() -> None:
    off = "tso off gso off gro off tx-udp-segmentation off"
    assert [off in words for words in of(Network(loss=0.001), HUB, "ethtool")] == [True] * 3
    assert [off in words for words in of(Network(loss=0.001), 1, "ethtool")] == [True]
    assert {command.words[0] for command in commands(Network(rate_bits=1e9), [1, 2])} == {"ip", "tc"}


def test_a_packet_meets_one_rule_of_loss_and_is_counted_by_sender() -> None:
    (rules,) = of(Network(loss=0.001), HUB, "nft")
    assert rules.count("meta protocol ip numgen random mod 1000000 < 1000 ") == 1
    assert [f'ip saddr 10.77.0.{rank + 1} counter name "lost{rank}" drop' in rules for rank in range(3)] == [
        True
    ] * 3


def test_congestion_control_is_pinned_by_the_route() -> None:
    (words,) = of(Network(congestion="bbr"), 2, "ip")
    assert "route add 10.77.0.0/24 dev tweed0 src 10.77.0.3 congctl bbr" in words


def test_each_rank_gets_an_end_in_its_own_namespace() -> None:
    (words, joined) = of(Network(), HUB, "ip")
    assert "link add rank1 type veth peer name tweed0 netns 12" in words
    assert "link set rank1 master hub" in joined


def test_too_many_ranks_are_refused() -> None:
    with pytest.raises(UsageError, match="room for 253 ranks"):
        commands(Network(), [1] * (MOST_RANKS + 1))
