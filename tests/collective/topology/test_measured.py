"""Networks from matrices: ports are shared, sites are found, and what is missing is named."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from tweed.collective import topology
from tweed.errors import UsageError


def matrix(ranks: int, pair: Any) -> dict[str, Any]:
    """As `tweed doctor` gives it; `pair(src, dst)` is bandwidth, latency and, if it is not tcp, the way."""
    links = []
    for src, dst in permutations(range(ranks), 2):
        bandwidth, latency_s, *via = pair(src, dst)
        found = {"via": via[0] if via else "tcp", "bandwidth": bandwidth, "latency_s": latency_s}
        links.append({"src": src, "dst": dst} | found)
    return {"members": [{"rank": rank} for rank in range(ranks)], "links": links}


def test_equal_hosts_are_a_star() -> None:
    found = topology.measured(matrix(4, lambda a, b: (1e8, 1e-4)))
    assert (found.ranks, found.nodes) == (4, 5)
    assert sorted(found.links) == sorted(
        [(rank, 4, 10**8, 5e-5, 1) for rank in range(4)] + [(4, rank, 10**8, 5e-5, 1) for rank in range(4)]
    )
    assert found.places == [[0, 0], [0, 1], [0, 2], [0, 3]]


def test_a_slow_port_is_that_hosts_alone() -> None:
    found = topology.measured(matrix(4, lambda a, b: (1e7 if 3 in (a, b) else 1e8, 1e-4)))
    wires = {(src, dst): bandwidth for src, dst, bandwidth, *_ in found.links}
    assert found.nodes == 5 and wires[3, 4] == wires[4, 3] == 10**7 and wires[0, 4] == 10**8


def test_two_sites_share_one_way() -> None:
    def pair(a: int, b: int) -> tuple[float, float]:
        return (1.25e8, 1e-4) if a // 3 == b // 3 else (1.2e7, 2e-2)

    found = topology.measured(matrix(6, pair))
    wires = {link[:2]: link[2:4] for link in found.links}
    assert found.nodes == 8 and found.places == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert wires[6, 7] == (12_000_000, pytest.approx(2e-2 - 1e-4)) == wires[7, 6]


def test_a_far_site_as_fast_as_the_near_is_a_site() -> None:
    found = topology.measured(matrix(4, lambda a, b: (1e8, 1e-4 if a // 2 == b // 2 else 3e-2)))
    assert [place[0] for place in found.places] == [0, 0, 1, 1]


def test_ranks_of_one_host_share_its_port() -> None:
    def pair(a: int, b: int) -> tuple[Any, ...]:
        return (5e9, 2e-6, "shm") if a // 2 == b // 2 else (1e8, 1e-4)

    found = topology.measured(matrix(4, pair))
    wires = {link[:2]: link[2] for link in found.links}
    assert found.nodes == 4 + 2 + 1 and wires[4, 6] == wires[6, 5] == 10**8 and wires[0, 4] == 5 * 10**9
    assert found.places == [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]]


def test_three_single_hosts_far_apart_are_linked_pair_by_pair() -> None:
    far = {(0, 1): 1e7, (0, 2): 3e7, (1, 2): 1e8}
    found = topology.measured(matrix(3, lambda a, b: (far[min(a, b), max(a, b)], 1e-2 * (a + b))))
    assert found.ranks == 3 and topology.check(found) is None


def test_noise_is_no_unevenness() -> None:
    noisy = topology.measured(matrix(4, lambda a, b: (1e8 * (1 + 0.01 * (a + b)), 1e-4 * (1 - 0.01 * a))))
    wires = {link[2:4] for link in noisy.links}
    assert len(wires) == 1 and next(iter(wires))[0] == pytest.approx(1.03e8, rel=0.02)


def test_what_is_missing_is_named() -> None:
    some = matrix(3, lambda a, b: (1e8, 1e-4))
    with pytest.raises(UsageError, match="from rank 0 to rank 2"):
        topology.measured({**some, "links": [link for link in some["links"] if link["dst"] != 2]})
    with pytest.raises(UsageError, match="share one host's memory"):
        topology.measured(matrix(2, lambda a, b: (1e9, 1e-6, "shm")))
