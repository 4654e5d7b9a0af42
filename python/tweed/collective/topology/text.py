"""A network as JSON: one documented form (docs/topology.md), and errors that name the field.

{"format": "tweed topology", "version": 1, "name": "two ranks", "ranks": 2,
 "links": [{"from": 0, "to": 1, "bandwidth": 125000000, "latency_s": 5e-05, "both_ways": true}]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from tweed._core import Topology
from tweed.collective.topology.base import port
from tweed.collective.topology.check import check
from tweed.errors import UsageError
from tweed.files import write_atomic

FORMAT, VERSION = "tweed topology", 1


def plain(topology: Topology) -> dict[str, Any]:
    """For JSON: the same network always gives the same value. What is not known is left out."""
    value: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    if topology.name:
        value["name"] = topology.name
    value["ranks"] = topology.ranks
    if topology.is_complete:
        wire = port(topology)
        return {**value, "complete": {"bandwidth": wire.bandwidth, "latency_s": wire.latency_s}}
    value["links"] = [_link(*fields) for fields in topology.links]
    if topology.capacities:
        value["capacities"] = {str(node): capacity for node, capacity in topology.capacities.items()}
    if topology.sides:
        value["grid"] = {"sides": topology.sides, "wraps": topology.wraps}
    if topology.places:
        value["places"] = topology.places
    return value


def from_plain(value: object) -> Topology:
    """The inverse of `plain`.

    Raises: UsageError with the first field that is wrong, and what belongs there; or with what `check` says.
    """
    top = _Fields("", value, _TOP)
    if top.value.get("format") != FORMAT:
        raise UsageError(f'format is {top.value.get("format")!r}: the first field is "format": "{FORMAT}"')
    if top.value.get("version") != VERSION:
        raise UsageError(f"version is {top.value.get('version')!r}: this tweed reads version {VERSION}")
    ranks = top.whole("ranks", 2)
    if ("links" in top.value) == ("complete" in top.value):
        raise UsageError('give either "links" or "complete": what is linked with what')
    if "complete" in top.value:
        shared = _Fields("complete", top.value["complete"], ("bandwidth", "latency_s"))
        return Topology.complete(ranks, shared.whole("bandwidth", 1), shared.seconds("latency_s"))
    sides, wraps = _grid(top.value.get("grid"))
    topology = Topology(
        ranks,
        _links(top.items("links")),
        top.text("name"),
        _capacities(top.value.get("capacities", {})),
        sides,
        wraps,
        _places(top.items("places")),
    )
    check(topology)
    return topology


def write(topology: Topology, path: str | Path) -> None:
    """Writes the file that `read` reads: a link per line."""
    lines = [f"  {json.dumps(key)}: {_lines(value)}" for key, value in plain(topology).items()]
    write_atomic(Path(path), "{\n" + ",\n".join(lines) + "\n}\n")


def read(path: str | Path) -> Topology:
    """The network in a file.

    Raises: UsageError if the file cannot be read, is not JSON, or a field is wrong; names file and field.
    """
    try:
        return from_plain(json.loads(Path(path).read_text(encoding="utf-8")))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None


_TOP = ("format", "version", "name", "ranks", "links", "complete", "capacities", "grid", "places")
_LINK = ("from", "to", "bandwidth", "latency_s", "count", "both_ways")


@dataclass(frozen=True, slots=True)
class _Fields:
    """An object of the file, with its place there for errors."""

    at: str
    value: Any
    known: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.value, dict):
            raise UsageError(f"{self.at or 'the file'} is {_short(self.value)}: an object belongs here")
        if unknown := sorted(self.value.keys() - set(self.known)):
            raise UsageError(f"{self._name(unknown[0])} is no field; there are: {', '.join(self.known)}")

    def _name(self, field: str) -> str:
        return f"{self.at}.{field}" if self.at else field

    def _wrong(self, field: str, wanted: str) -> UsageError:
        found = f"is {_short(self.value[field])}" if field in self.value else "is missing"
        return UsageError(f"{self._name(field)} {found}: give {wanted}")

    def whole(self, field: str, least: int, default: int | None = None) -> int:
        value = self.value.get(field, default)
        bytes_per_second = field == "bandwidth" or self.at == "capacities"
        most = 2**63 - 1 if bytes_per_second else 2**32 - 2
        if type(value) is not int or not least <= value <= most:
            unit = "bytes per second, " if bytes_per_second else ""
            raise self._wrong(field, f"{unit}a whole number from {least} to {most}")
        return value

    def seconds(self, field: str) -> float:
        value = self.value.get(field)
        if type(value) not in (int, float) or not isfinite(value) or not 0 <= value <= 3600:
            raise self._wrong(field, "seconds, 0 to 3600")
        return float(value)

    def flag(self, field: str) -> bool:
        value = self.value.get(field, False)
        if type(value) is not bool:
            raise self._wrong(field, "true or false")
        return value

    def text(self, field: str) -> str:
        value = self.value.get(field, "")
        if type(value) is not str:
            raise self._wrong(field, "text")
        return value

    def items(self, field: str) -> list[Any]:
        value = self.value.get(field, [])
        if type(value) is not list:
            raise self._wrong(field, "a list")
        return value


def _links(values: Sequence[object]) -> list[tuple[int, int, int, float, int]]:
    found: dict[tuple[int, int], tuple[int, tuple[int, float, int]]] = {}
    for place, value in enumerate(values):
        link = _Fields(f"links[{place}]", value, _LINK)
        src, dst = link.whole("from", 0), link.whole("to", 0)
        wire = link.whole("bandwidth", 1), link.seconds("latency_s"), link.whole("count", 1, 1)
        if src == dst:
            raise UsageError(f"{link.at} leads from {src} to {src}: a link joins two nodes")
        for pair in [(src, dst), (dst, src)] if link.flag("both_ways") else [(src, dst)]:
            if pair in found:
                raise UsageError(
                    f"{link.at} and links[{found[pair][0]}] both lead from {pair[0]} to {pair[1]}: "
                    'keep one; "count" says how many lie side by side'
                )
            found[pair] = place, wire
    return [(*pair, *wire) for pair, (_, wire) in found.items()]


def _capacities(value: object) -> dict[int, int]:
    names = tuple(value) if isinstance(value, dict) else ()
    for name in names:
        if not name.isdecimal() or len(name) > 10:
            raise UsageError(f"capacities.{name} is no node: give a switch's number")
    fields = _Fields("capacities", value, names)
    return {int(name): fields.whole(name, 1) for name in names}


def _grid(value: object) -> tuple[list[int], list[bool]]:
    if value is None:
        return [], []
    grid = _Fields("grid", value, ("sides", "wraps"))
    sides, wraps = grid.items("sides"), grid.items("wraps")
    if not sides or any(type(side) is not int or not 1 <= side < 2**32 for side in sides):
        raise UsageError(f"grid.sides is {_short(sides)}: give whole numbers from 1 on, such as [4, 4]")
    if any(type(wrap) is not bool for wrap in wraps):
        raise UsageError(f"grid.wraps is {_short(wraps)}: give true or false for each of the sides")
    return sides, wraps


def _places(values: list[Any]) -> list[list[int]]:
    for rank, place in enumerate(values):
        if type(place) is not list or any(type(part) is not int or not 0 <= part < 2**32 for part in place):
            raise UsageError(f"places[{rank}] is {_short(place)}: give whole numbers: site, rack, host")
    return values


def _link(src: int, dst: int, bandwidth: int, latency_s: float, count: int) -> dict[str, Any]:
    link = {"from": src, "to": dst, "bandwidth": bandwidth, "latency_s": latency_s}
    return link if count == 1 else {**link, "count": count}


def _lines(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return "[\n" + ",\n".join(f"    {json.dumps(item)}" for item in value) + "\n  ]"
    return json.dumps(value)


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
