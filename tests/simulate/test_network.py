"""Flows between nodes: max-min fair, whatever starts, ends and changes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.errors import UsageError
from tweed.simulate.network import FluidNetwork


def star(rate: float, **up: float) -> FluidNetwork:
    """A hub, and nodes with so much up."""
    network = FluidNetwork()
    network.set_rates("hub", rate, rate, 0.0)
    for node, most in up.items():
        network.set_rates(node, most, 99.0, 0.0)
    return network


def ends(network: FluidNetwork) -> list[tuple[str, float]]:
    found = []
    while True:
        at, key = network.next_end()
        if key is None:
            return found
        assert network.stop(key, at) == pytest.approx(0.0, abs=1e-6)
        found.append((str(key), at))


def test_alone_a_flow_has_the_slower_of_two_links() -> None:
    for most, expected in ((5.0, 20.0), (50.0, 10.0)):
        network = star(10.0, a=most)
        network.start("flow", "a", "hub", 100, 0.0)
        assert ends(network) == [("flow", expected)]


def test_what_a_slow_flow_leaves_the_others_share() -> None:
    network = star(10.0, slow=2.0, a=99.0, b=99.0)
    for key, numbytes in (("slow", 20), ("a", 40), ("b", 80)):
        network.start(key, key, "hub", numbytes, 0.0)
    # 2, 4 and 4; at 10 the first two have ended, and b has 40 left at 10 a second
    assert dict(ends(network)) == pytest.approx({"slow": 10.0, "a": 10.0, "b": 14.0})


def test_a_node_may_change_its_rates_and_a_flow_may_be_cut() -> None:
    network = star(10.0, a=99.0, b=99.0)
    network.start("a", "a", "hub", 100, 0.0)
    network.set_rates("hub", 5.0, 5.0, 4.0)
    network.start("b", "b", "hub", 100, 8.0)
    assert network.stop("b", 12.0) == pytest.approx(90.0)
    assert ends(network) == [("a", pytest.approx(18.0))]
    assert network.next_end() == (math.inf, None)


def test_up_and_down_do_not_share() -> None:
    network = star(10.0, a=10.0, b=10.0)
    network.start("up", "a", "hub", 100, 0.0)
    network.start("down", "hub", "b", 100, 0.0)
    assert dict(ends(network)) == {"up": 10.0, "down": 10.0}


def test_what_never_moves_never_ends_and_what_is_empty_ends_at_once() -> None:
    network = star(10.0, a=0.0, b=5.0)
    network.start("stuck", "a", "hub", 1, 0.0)
    assert network.next_end() == (math.inf, None)
    network.start("empty", "b", "hub", 0, 3.0)
    assert network.next_end() == (3.0, "empty")
    assert network.stop("stuck", 7.0) == 1.0
    assert network.stop("stuck", 7.0) == 0.0


@pytest.mark.parametrize("rates", [(-1.0, 1.0), (1.0, math.inf), (math.nan, 1.0)])
def test_rates_that_cannot_be_are_refused(rates: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="bytes per second"):
        FluidNetwork().set_rates("a", *rates, 0.0)


def test_a_flow_needs_nodes_and_a_key_of_its_own() -> None:
    network = star(10.0, a=1.0)
    with pytest.raises(UsageError, match="set_rates"):
        network.start(1, "a", "nobody", 5, 0.0)
    network.start(1, "a", "hub", 5, 0.0)
    with pytest.raises(UsageError, match="flows already"):
        network.start(1, "a", "hub", 5, 0.0)


class Progressive:
    """The same, worked out anew at each event: all flows rise together until a link of theirs is full."""

    def __init__(self, rates: list[tuple[float, float]]) -> None:
        self.rates = rates
        self.flows: dict[Hashable, tuple[int, int]] = {}
        self.left: dict[Hashable, float] = {}

    def found(self) -> dict[Hashable, float]:
        rest = {(node, way): rate for node, pair in enumerate(self.rates) for way, rate in enumerate(pair)}
        free, rates = dict(self.flows), {}
        while free:
            users = Counter(link for src, dst in free.values() for link in ((src, 0), (dst, 1)))
            full, level = min(((link, rest[link] / users[link]) for link in users), key=lambda pair: pair[1])
            for key, (src, dst) in list(free.items()):
                if full in ((src, 0), (dst, 1)):
                    rates[key] = level
                    rest[src, 0] -= level
                    rest[dst, 1] -= level
                    del free[key]
        return rates

    def advance(self, seconds: float) -> None:
        for key, rate in self.found().items():
            self.left[key] = max(0.0, self.left[key] - rate * seconds)


@pytest.mark.parametrize("seed", range(60))
def test_rates_are_those_of_progressive_filling(seed: int) -> None:
    draw = np.random.default_rng(seed)
    count = int(draw.integers(2, 7))

    def rate() -> float:
        return float(draw.choice([0, 1, 2, 3, 5, 8.5]))

    plain, network, now = Progressive([(rate(), rate()) for _ in range(count)]), FluidNetwork(), 0.0
    for node, (up, down) in enumerate(plain.rates):
        network.set_rates(node, up, down, now)
    for step in range(60):
        assert {key: network.rate(key) for key in plain.flows} == pytest.approx(plain.found(), abs=1e-9)
        at, key = network.next_end()
        until = min(at, now + draw.random() * 3)
        plain.advance(until - now)
        now, kind = until, draw.integers(4)
        if at == now:
            assert plain.left.pop(key) == pytest.approx(0.0, abs=1e-6)
            plain.flows.pop(key)
            network.stop(key, now)
        elif kind < 2:
            ends_at = int(draw.integers(count)), int(draw.integers(count))
            plain.flows[step], plain.left[step] = ends_at, float(draw.integers(30))
            network.start(step, *ends_at, plain.left[step], now)
        elif kind == 2 and plain.flows:
            key = list(plain.flows)[int(draw.integers(len(plain.flows)))]
            plain.flows.pop(key)
            assert network.stop(key, now) == pytest.approx(plain.left.pop(key), abs=1e-6)
        else:
            node = int(draw.integers(count))
            plain.rates[node] = rate(), rate()
            network.set_rates(node, *plain.rates[node], now)


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 20)), min_size=1, max_size=8))
def test_bytes_are_conserved_and_the_link_is_full_while_it_can_be(flows: list[tuple[int, int]]) -> None:
    network = star(10.0)
    for key, (numbytes, most) in enumerate(flows):
        network.set_rates(key, most, 99.0, 0.0)
        network.start(key, key, "hub", numbytes, 0.0)
    last = max(at for _, at in ends(network))
    least = max(
        sum(numbytes for numbytes, _ in flows) / 10, *(numbytes / most for numbytes, most in flows), 0
    )
    assert least - 1e-9 <= last <= 3 * least
