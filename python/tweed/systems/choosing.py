"""Which strategy for which network: what was measured for other pages, by network. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tweed.report.comparison import number
from tweed.report.notes import Line, find, where
from tweed.report.study import Section, Table
from tweed.systems.compression.contenders import BBR, FAR_PLACES, LOSSES, NAMED, PEERS, congested, place
from tweed.systems.compression.report import ALL_WORDS
from tweed.systems.harness.time_to_accuracy import DDP, rounds_s, step_s, trainings
from tweed.systems.ltp import contenders as ltp

UNKNOWN = "not measured"
#: By side of ltp.md.
OVER = {ltp.OURS: "`ltp(server=0)`", ltp.LOSSLESS: "`ltp(server=0, lossless=True)`"}
OVER |= {peer: f"TCP, {peer}" for peer in ltp.PEERS}
#: The rate of workers in ltp.md, and the round trips that are shown.
LTP_RATE, ROUND_TRIPS_MS = "100mbit", ("0.1", "40")
#: Points by which the accuracy of what is named may be below DDP's.
POINTS = 0.5
#: Of the links with round trips.
FAR_WORDS = tuple(f"{rate} Mbit/s, round trips of 40 ms" for rate in (10, 100))


def sections(compressed: Sequence[Line], exchanged: Sequence[Line]) -> list[Section]:
    """The tables of the page.

    Args:
      compressed: notes of `tweed reproduce compression`.
      exchanged: notes of `tweed reproduce ltp`.
    """
    measures = ["a step", "sent per step", "accuracy"]
    head = ["network", "quickest", *measures, "beside it", *measures]
    rows = [
        row for rate in ALL_WORDS for loss in LOSSES for row in _network(compressed, exchanged, rate, loss)
    ]
    for name, there in zip(FAR_WORDS, FAR_PLACES, strict=True):
        rows.append([name, *_ours_and_theirs(compressed, there)])
    return [
        Section("By network", tables=[Table("", head, rows)]),
        Section("By strategy, where nothing is lost", tables=[_strategies(compressed)]),
        Section("By transport, where packets are lost", tables=[_transports(exchanged)]),
    ]


def _network(
    compressed: Sequence[Line], exchanged: Sequence[Line], rate: str, loss: str
) -> Iterator[list[str]]:
    """What is quickest, and the peer that was measured beside it."""
    name, there = f"{ALL_WORDS[rate]}, {loss} lost", place(rate, loss)
    yield [name, *_ours_and_theirs(compressed, there)]
    for round_trip in ROUND_TRIPS_MS if rate == LTP_RATE and loss != LOSSES[0] else ():
        steps = _steps_s(exchanged, ltp.Place(loss, round_trip))
        cells = [cell for sides in (OVER, ltp.PEERS) for cell in _over(steps, _first(steps, sides))]
        yield [f"{name}, round trips of {round_trip} ms", *cells]


def _ours_and_theirs(lines: Sequence[Line], where: str) -> list[str]:
    both = [quickest(lines, where, sides) for sides in (NAMED, PEERS)]
    return [cell for side in both for cell in _cells(lines, side, where)]


def _first(seconds: Mapping[str, float], sides: Iterable[str]) -> str | None:
    """The quickest of these sides; None if none was timed."""
    return min((side for side in sides if side in seconds), key=lambda side: seconds[side], default=None)


def quickest(lines: Sequence[Line], rate: str, sides: Iterable[str] = NAMED) -> str | None:
    """The side with the shortest step, of these that were timed and learn as DDP does."""
    least = accuracy(lines, DDP)
    timed = {side: _timed(lines, side, rate) for side in sides}
    good = {
        side: _seconds(line)
        for side, line in timed.items()
        if line is not None and (accuracy(lines, side) or 0.0) >= (least or 0.0) - POINTS / 100
    }
    return _first(good, good)


def _timed(lines: Sequence[Line], side: str, rate: str) -> Line | None:
    """The line of its steps there, with the congestion control under which they are quickest."""
    both = (find(lines, kind="step_times", side=side, rate=one) for one in (rate, congested(rate, BBR)))
    return min(filter(None, both), key=_seconds, default=None)


def _seconds(timed: Line) -> float:
    return statistics.median(rounds_s(timed))


def accuracy(lines: Sequence[Line], side: str) -> float | None:
    """In the end, the mean over seeds."""
    found = [float(line["curve"][-1][2]) for line in trainings(lines, side)]
    return statistics.fmean(found) if found else None


def _cells(lines: Sequence[Line], side: str | None, rate: str) -> list[str]:
    """Name, time and bytes of a step, and accuracy."""
    timed = None if side is None else _timed(lines, side, rate)
    if side is None or timed is None:
        return [side or UNKNOWN, *[UNKNOWN] * 3]
    name = f"`{NAMED[side]}`" if side in NAMED else side
    name += f", {BBR}" if timed["rate"] != rate else ""
    sent = f"{number(timed['link_bytes'] / sum(timed['steps']) / 1000)} KB"
    return [name, _ms(_seconds(timed)), sent, _percent(accuracy(lines, side))]


def _ms(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else f"{number(1000 * seconds)} ms"


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2%}"


def _over(steps: Mapping[str, float], side: str | None) -> list[str]:
    """As `_cells`: what left the links was not counted there, and no model was trained."""
    return [UNKNOWN if side is None else OVER[side], _ms(steps.get(side or "")), UNKNOWN, UNKNOWN]


def _steps_s(lines: Sequence[Line], place: ltp.Place) -> dict[str, float]:
    """The median of each side's steps that was measured there."""
    there = where(lines, kind="exchange", place=place.name, failed=None)
    return {line["side"]: statistics.median(line["steps_s"]) for line in there if line["steps_s"]}


def _strategies(lines: Sequence[Line]) -> Table:
    rows = []
    for side in dict.fromkeys((*PEERS, *NAMED)):
        times = [_ms(step_s(lines, side, place(rate, LOSSES[0]))) for rate in ALL_WORDS]
        name, _, sent, reached = _cells(lines, side, "10mbit")
        rows.append([name, reached, sent, *times])
    steps = [f"a step at {rate}" for rate in ALL_WORDS.values()]
    head = ["strategy", "accuracy", "sent per step, at 10 Mbit/s", *steps]
    return Table("", head, rows)


def _transports(lines: Sequence[Line]) -> Table:
    places = [(loss, round_trip) for round_trip in ROUND_TRIPS_MS for loss in LOSSES]
    by_place = {place: _steps_s(lines, ltp.Place(*place)) for place in places}
    rows = [[OVER[side], *(_ms(by_place[place].get(side)) for place in places)] for side in OVER]
    return Table("", ["transport", *(f"{loss} lost, {trip} ms" for loss, trip in places)], rows)
