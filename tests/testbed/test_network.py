"""What a network is like, and the commands that build it: pure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.errors import UsageError
from tweed.testbed import Link, Network, shaping
from tweed.testbed.names import HUB, MOST_RANKS
from tweed.testbed.star_network import commands, shaped
from tweed.testbed.text import PROFILES

chances = st.none() | st.integers(0, 400_000).map(lambda ppm: ppm / 10**6)
ways: dict[str, st.SearchStrategy[Any]] = {
    "rate_bits": st.none() | st.integers(10**4, 10**11),
    "delay_ms": st.none() | st.integers(5_000, 10**6).map(lambda us: us / 1000),
    "loss": chances,
    "burst": st.none() | st.integers(10, 1000).map(lambda tenths: tenths / 10),
    "reorder": chances,
    "duplicate": chances,
}
queues = st.sampled_from([{}, {"queue_ms": 2.5}, {"queue_bytes": 64_000}, {"queue_bytes": 12_345}])
directions = st.none() | st.builds(
    lambda way, queue: Link(**way, **queue), st.fixed_dictionaries(ways), queues
)
links = ways | {"up": directions, "down": directions}
hosts = st.dictionaries(st.integers(0, 20), st.builds(Link, **links), max_size=3)
congestions = st.sampled_from(["cubic", "bbr", "reno"])
networks = st.builds(Network, **links, hosts=hosts, congestion=congestions)


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
        ("rtt=40ms", Network(delay_ms=20)),
        ("delay=250us,jitter=0.1ms", Network(delay_ms=0.25, jitter_ms=0.1)),
        ("rate=1mbit,queue=64kb", Network(rate_bits=1e6, queue_bytes=64_000)),
        ("rate=1mbit,queue=20ms", Network(rate_bits=1e6, queue_ms=20)),
        ("loss=1%,burst=4", Network(loss=0.01, burst=4)),
        ("reorder=1%,duplicate=0.5%,offload=yes", Network(reorder=0.01, duplicate=0.005, offload=True)),
        ("delay=1ms,0.delay=0ms", Network(delay_ms=1, hosts={0: Link(delay_ms=0)})),
        (
            "up.rate=20mbit,down.rate=100mbit,3.rate=1gbit,3.down.loss=1%",
            Network(
                up=Link(rate_bits=2e7),
                down=Link(rate_bits=1e8),
                hosts={3: Link(rate_bits=1e9, down=Link(loss=0.01))},
            ),
        ),
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
        ("delay=20", "a delay has a unit, ms, us, s"),
        ("delay=-1ms", "between 0 and 10000 ms"),
        ("delay=1ms,rtt=2ms", "delay is there twice"),
        ("delay=1ms,jitter=2ms", "a jitter of 2 ms is more than the delay"),
        ("queue=1kb", "between 1600 (a packet) and 1 GiB"),
        ("loss=1%,burst=0.5", "a burst of 0.5 packets is not between 1 and 10000"),
        ("loss=90%,burst=4", "a loss of 0.9 needs longer bursts than 4"),
        ("loss=1%,offload=yes", "offload goes with no loss"),
        ("offload=maybe", "it is yes or no"),
        ("0.congestion=bbr", "congestion holds for all links"),
        ("0.left.rate=1mbit", "cannot read '0.left.rate=1mbit'"),
        ("wan,nowhere", "cannot read 'nowhere'"),
        ("atlantis", "the profiles lan, incast, lossy-lan, wan, home, edge"),
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


def test_words_tell_what_is_different() -> None:
    words = Network.parse("wan,0.rate=1gbit,0.down.loss=3%,burst=2,queue=64kb").words
    assert words == (
        "100 Mbit/s per worker, queues of 64 KB, 20 ± 1 ms of delay, 0.01 % of packets lost in bursts of 2, "
        "rank 0: 1 Gbit/s and down 3 % of packets lost, cubic"
    )


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_a_network_with_a_reason(name: str) -> None:
    network = Network.parse(name)
    assert network == Network.parse(PROFILES[name].text)
    assert PROFILES[name].reason.endswith(".")


def test_the_page_has_every_profile() -> None:
    page = (Path(__file__).parents[2] / "docs" / "testbed.md").read_text()
    for name, profile in PROFILES.items():
        assert f"| `{name}` | `{profile.text}` | {profile.reason} |" in page


def test_what_stands_behind_a_profile_goes_before_it() -> None:
    wan = Network.parse("wan")
    assert Network.parse("wan,rate=500mbit,loss=3%") == replace(wan, rate_bits=5e8, loss=0.03)
    assert Network.parse("wan,rtt=10ms").delay_ms == 5
    assert Network.parse("home,up.rate=1gbit").direction(0, up=True).rate_bits == 10**9


def test_a_round_trip_may_be_given_for_the_delay() -> None:
    assert Network(rtt_ms=40) == Network(delay_ms=20)
    with pytest.raises(UsageError, match="not both"):
        Network(rtt_ms=40, delay_ms=1)


def test_a_host_goes_before_the_network_and_a_direction_before_a_link() -> None:
    network = Network.parse("rate=1mbit,down.rate=2mbit,0.rate=3mbit,0.up.rate=4mbit")
    rates = [network.direction(rank, up).rate_bits for rank in (0, 1) for up in (True, False)]
    assert rates == [4e6, 3e6, 1e6, 2e6]


def test_what_strikes_packets_strikes_them_once_on_their_way_up() -> None:
    network = Network.parse("delay=5ms,loss=1%,burst=3,1.down.delay=2ms")
    up, down, other = (network.direction(rank, way) for rank, way in ((0, True), (0, False), (1, False)))
    assert (up.delay_us, up.loss_ppm, up.burst) == (5000, 10_000, 3)
    assert (down.delay_us, down.loss_ppm, other.delay_us) == (0, 0, 2000)


@pytest.mark.parametrize(
    ("line", "bytes_up", "bytes_down"),
    [
        ("rate=8mbit", 50_000, 50_000),
        ("rate=8mbit,queue=10ms", 10_000, 10_000),
        ("rate=8mbit,queue=10ms,down.queue=64kb", 10_000, 64_000),
        ("rate=8mbit,queue=64kb,0.queue=10ms", 10_000, 10_000),
        ("rate=100kbit,queue=1ms", 1600, 1600),
        ("queue=64kb", None, None),
    ],
)
def test_a_queue_is_before_a_link_that_has_a_rate(line: str, bytes_up: int, bytes_down: int) -> None:
    network = Network.parse(line)
    assert [network.direction(0, up).queue_bytes for up in (True, False)] == [bytes_up, bytes_down]


@pytest.mark.parametrize(
    "line", ["delay=1ms", "2.delay=1ms", "loss=1%,burst=2", "down.reorder=1%", "duplicate=1%"]
)
def test_only_what_the_kernel_cannot_do_is_emulated(line: str) -> None:
    assert Network.parse(line).emulated
    assert not Network.parse("rate=1gbit,loss=1%,burst=1,0.loss=0,down.queue=64kb,delay=0ms").emulated


def of(network: Network, place: int, program: str) -> list[str]:
    found = [command for command in commands(network, [11, 12, 13]) if command.words[0] == program]
    return [" ".join(command.words) + "\n" + command.text for command in found if command.place == place]


def test_rate_is_set_at_both_ends_of_every_pair() -> None:
    network = Network(rate_bits=100e6)
    (hub,) = of(network, HUB, "tc")
    assert hub.count("root tbf rate 100000000bit burst 12500 limit 637500") == 3
    assert all("dev tweed0 root tbf rate 100000000bit" in of(network, rank, "tc")[0] for rank in range(3))


@pytest.mark.parametrize(
    ("line", "place", "program", "words"),
    [
        ("rate=1mbit", 0, "tc", "burst 4096"),  # two packets at once
        ("rate=1mbit,delay=1ms,offload=yes", 0, "tc", "burst 72000"),  # what offloads make
        ("congestion=bbr", 2, "ip", "add 10.77.0.0/24 dev tweed0 src 10.77.0.3 congctl bbr"),
        ("rate=1mbit", HUB, "ip", "link add rank1 type veth peer name tweed0 netns 12"),
        ("delay=1ms", 0, "ethtool", "tso off"),
    ],
)
def test_who_runs_what(line: str, place: int, program: str, words: str) -> None:
    assert words in of(Network.parse(line), place, program)[0]


def test_offloads_are_off_at_both_ends_only_where_packets_are_lost() -> None:
    off = "tso off gso off gro off tx-udp-segmentation off"
    assert [off in words for words in of(Network(loss=0.001), HUB, "ethtool")] == [True] * 3
    assert [off in words for words in of(Network(loss=0.001), 1, "ethtool")] == [True]
    assert {command.words[0] for command in commands(Network(rate_bits=1e9), [1, 2])} == {"ip", "tc"}


def test_a_packet_meets_one_rule_of_loss_and_is_counted_by_sender() -> None:
    (rules,) = of(Network(loss=0.001), HUB, "nft")
    assert rules.count("meta protocol ip numgen random mod 1000000 < 1000 ") == 1
    assert all(f'ip saddr 10.77.0.{rank + 1} counter name "lost{rank}" drop' in rules for rank in range(3))


def test_too_many_ranks_are_refused() -> None:
    with pytest.raises(UsageError, match="room for 253 ranks"):
        commands(Network(), [1] * (MOST_RANKS + 1))


def test_where_packets_are_delayed_the_emulator_does_it() -> None:
    assert "link set rank1 master hub" in of(Network(), HUB, "ip")[1]
    assert "master" not in str(commands(Network(delay_ms=1), [11, 12]))
    assert not of(Network(delay_ms=1, offload=True), 0, "ethtool")
    assert "numgen" not in shaping.losses(Network(loss=0.01, burst=2), 2)


def test_uneven_losses_have_a_rule_each() -> None:
    script = shaping.losses(Network.parse("loss=1%,1.loss=2%,0.down.loss=3%"), 2)
    assert "ip saddr 10.77.0.1 numgen random mod 1000000 < 10000 jump lost" in script
    assert "ip saddr 10.77.0.2 numgen random mod 1000000 < 20000 jump lost" in script
    assert 'meta protocol ip oifname "rank0" numgen random mod 1000000 < 30000 jump lost' in script


def test_a_rank_that_is_cut_off_loses_all_both_ways() -> None:
    script = shaping.losses(Network(), 3, [1])
    assert "ether saddr 02:74:77:65:64:02 jump lost" in script
    assert 'oifname "rank1" jump lost' in script


def changes(before: str, after: str) -> list[str]:
    steps = shaped(Network.parse(after), 2, Network.parse(before))
    return [" ".join(step.words) + "\n" + step.text for step in steps]


def test_a_change_takes_away_what_is_not_said_any_more() -> None:
    undone = changes("rate=1mbit,loss=1%", "congestion=cubic")
    assert any("qdisc del dev rank0 root" in step for step in undone)
    assert any(step.startswith("nft") and "numgen" not in step for step in undone)
    assert changes("delay=1ms", "delay=2ms") == []
    assert "route replace" in changes("congestion=cubic", "congestion=bbr")[0]
