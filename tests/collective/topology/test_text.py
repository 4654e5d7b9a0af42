"""Networks as JSON: there and back, and errors that name the field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collective.topology.families import ALL, SLOW
from tweed.collective import topology
from tweed.collective.topology import Topology
from tweed.errors import UsageError

FLAT = Topology.complete(5, 1000, 0.25)
FULL = topology.star(3, capacity=12)


@pytest.mark.parametrize("network", [*ALL, FLAT, FULL], ids=lambda network: network.name or "complete")
def test_there_and_back_through_a_file(network: Topology, tmp_path: Path) -> None:
    topology.write(network, tmp_path / "network.json")
    assert topology.read(tmp_path / "network.json") == network


WIRES = st.tuples(st.integers(1, 2**63 - 1), st.floats(0, 3600), st.integers(1, 2**32 - 2))


@given(st.lists(st.tuples(WIRES, WIRES), min_size=3, max_size=3), st.text())
def test_any_wires_there_and_back(wires: list[tuple[tuple[int, float, int], ...]], name: str) -> None:
    links = [(rank, 3, *up) for rank, (up, _) in enumerate(wires)]
    links += [(3, rank, *down) for rank, (_, down) in enumerate(wires)]
    network = Topology(3, links, name)
    assert topology.from_plain(json.loads(json.dumps(topology.plain(network)))) == network


def test_both_ways_is_two_links() -> None:
    link = {"from": 0, "to": 1, "bandwidth": 5_000_000, "latency_s": 0.03, "both_ways": True}
    value = {"format": "tweed topology", "version": 1, "ranks": 2, "links": [link]}
    assert topology.from_plain(value) == Topology(2, topology.line(2, SLOW).links)


Change = Callable[[dict[str, Any]], object]


def link(**fields: Any) -> Change:
    return lambda value: value["links"][2].update(fields)


def top(**fields: Any) -> Change:
    return lambda value: value.update(fields)


BYTES = "give bytes per second, a whole number from 1 to 9223372036854775807"
WRONG: dict[str, Change] = {
    'format is None: the first field is "format": "tweed topology"': lambda value: value.pop("format"),
    "version is 2: this tweed reads version 1": top(version=2),
    "ranks is missing: give a whole number from 2 to 4294967294": lambda value: value.pop("ranks"),
    'give either "links" or "complete": what is linked with what': lambda value: value.pop("links"),
    "hosts is no field; "
    "there are: format, version, name, ranks, links, complete, capacities, grid, places": top(hosts=3),
    "links[2] is 7: an object belongs here": lambda value: value["links"].__setitem__(2, 7),
    "links[2].bandwith is no field; there are: from, to, bandwidth, latency_s, count, both_ways": link(
        bandwith=3
    ),
    f"links[2].bandwidth is missing: {BYTES}": (lambda value: value["links"][2].pop("bandwidth")),
    f"links[2].bandwidth is 0: {BYTES}": link(bandwidth=0),
    f"links[2].bandwidth is true: {BYTES}": link(bandwidth=True),
    "links[2].latency_s is -1: give seconds, 0 to 3600": link(latency_s=-1),
    "links[2].latency_s is NaN: give seconds, 0 to 3600": link(latency_s=float("nan")),
    "links[2].to is -1: give a whole number from 0 to 4294967294": link(to=-1),
    "links[2].count is 0: give a whole number from 1 to 4294967294": link(count=0),
    'links[2].both_ways is "no": give true or false': link(both_ways="no"),
    "links[2] leads from 3 to 3: a link joins two nodes": link(**{"from": 3, "to": 3}),
    'links[2] and links[0] both lead from 0 to 3: keep one; "count" says how many lie side by side': link(
        **{"from": 0, "to": 3}
    ),
    "name is 5: give text": top(name=5),
    "capacities.one is no node: give a switch's number": top(capacities={"one": 5}),
    "star 3: it gives a capacity to node 1: only switches have one, from 3 on": top(capacities={"1": 5}),
    "capacities is []: an object belongs here": top(capacities=[]),
    f"capacities.3 is 0.5: {BYTES}": top(capacities={"3": 0.5}),
    "grid.sides is [2.5]: give whole numbers from 1 on, such as [4, 4]": top(grid={"sides": [2.5]}),
    "grid.wraps is [1]: give true or false for each of the sides": top(grid={"sides": [3], "wraps": [1]}),
    "places[1] is 7: give whole numbers: site, rack, host": top(places=[[0], 7, [0]]),
    "places[2] is [-1]: give whole numbers: site, rack, host": top(places=[[0], [1], [-1]]),
    "complete.latency_s is missing: give seconds, 0 to 3600": lambda value: (
        value.pop("links"),
        value.update(complete={"bandwidth": 3}),
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_the_field_that_is_wrong_is_named(text: str) -> None:
    value = topology.plain(FULL)
    WRONG[text](value)
    with pytest.raises(UsageError) as raised:
        topology.from_plain(value)
    assert str(raised.value) == text


UNREADABLE = {
    b"": "is not JSON: Expecting value: line 1 column 1 (char 0)",
    b"\xff": "is not JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
    b"[]": ": the file is []: an object belongs here",
}


@pytest.mark.parametrize("content", UNREADABLE)
def test_a_file_that_is_no_network_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "network.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        topology.read(path)
    assert str(raised.value).removeprefix(str(path)).lstrip() == UNREADABLE[content]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.json cannot be read: No such file or directory"):
        topology.read(tmp_path / "nowhere.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(st.sampled_from(["ranks", "links", "capacities", "grid", "places", "complete", "name"]), JSON)
def test_nonsense_is_a_usage_error_or_a_network(field: str, nonsense: object) -> None:
    value = {**topology.plain(FULL), field: nonsense}
    try:
        assert isinstance(topology.from_plain(value), Topology)
    except UsageError as error:
        assert str(error)


def test_the_example_in_the_docs_is_a_network() -> None:
    page = Path(__file__).parents[3] / "docs" / "topology.md"
    example = page.read_text(encoding="utf-8").split("```json")[1].split("```")[0]
    network = topology.from_plain(json.loads(example))
    assert (network.ranks, network.nodes, len(network.links)) == (4, 6, 10)
    assert network.capacities == {5: 250_000_000}
