"""LTP, a loss-tolerant transport (arXiv 2305.04279, 2023): a server does not wait for the last packet.

Parts: `transport.Ltp` (out-of-order transmission, early close, bubble filling), `collective.Server`, and
gradients at every step: `ltp(server=0)`. Ours on top: what was lost comes with the next gradient; a lossless
mode; and contributions may cross directly, without a server.

The paper's claim: with 8 workers and a server, up to 30 times the training throughput of TCP's congestion
control on lossy networks, at the same final accuracy. The experiment runs this strategy over LTP and over
the kernel's TCP: the same gradients, the same server, the same links. DCTCP is left out: this kernel has none
and no switch here marks packets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from tweed.collective import Server
from tweed.recipes import ltp
from tweed.report import charts
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.strategy import Strategy
from tweed.systems import sections
from tweed.systems.base import Line, Notes, System
from tweed.systems.goals import verdicts
from tweed.systems.race import race, record
from tweed.systems.runner import Course, Load, Side
from tweed.systems.school import Lesson, teach
from tweed.testbed import Network

WORKERS = 8
TASK, BATCH = "fashion-mnist", 32
#: Bits per second of the server's link; those of the workers together are more, so it is where queues build.
SERVER_BITS = 500e6
LINKS = "rate=100mbit,0.rate=500mbit"
LOSSES = ("0", "0.01", "0.1", "1", "3")
ROUND_TRIPS_MS = ("0.1", "1", "40")
#: Eight links as fast as the server's, and a queue of 64 KB before it: a burst of all does not fit in.
INCAST = "rate=500mbit,queue=64kb"
SEEDS = (0, 1, 2)

OURS = "ltp"
#: Classic: one connection per pair of ranks. Beside them four, as tweed has by itself.
SIDES = (OURS, "reno", "cubic", "bbr", "cubic ×4", "bbr ×4")


@dataclass(frozen=True, slots=True)
class Place:
    """A network to race over. `loss` in percent, as text; so is `round_trip_ms`."""

    loss: str
    round_trip_ms: str

    @property
    def name(self) -> str:
        """For people and figures."""
        return f"{self.loss} %, {self.round_trip_ms} ms"

    def network(self) -> Network:
        """The testbed's. A round trip of 0.1 ms is about what the machine takes by itself."""
        lost = "" if self.loss == "0" else f",loss={self.loss}%"
        delayed = "" if self.round_trip_ms == "0.1" else f",rtt={self.round_trip_ms}ms"
        return Network.parse(LINKS + lost + delayed)


GRID = [Place(loss, round_trip) for round_trip in ROUND_TRIPS_MS for loss in LOSSES]
SHALLOW = "incast"


def side(label: str) -> Side:
    """What a label in `SIDES` stands for."""
    quiet = {"TWEED_METRICS": "0"}  # no figures for `tweed top` among those that are measured
    if label == OURS:
        return Side(label, ltp(server=0), quiet)
    congestion, _, streams = label.partition(" ×")
    over_tcp = quiet | {"TWEED_CONGESTION": congestion, "TWEED_STREAMS": streams or "1"}
    return Side(label, Strategy(collective=Server(0)), over_tcp)


def experiment(notes: Notes, quick: bool) -> None:
    """Races over all networks, then whole trainings. Cost: some 20 minutes on two cores; quick: one."""
    track = _Track(notes, _load(notes))
    if quick:
        track.race("1 %, 1 ms", Place("1", "1").network(), (OURS, "cubic"), Course(0.5, rounds=1, steps=4))
    else:
        for place in GRID:
            track.race(place.name, place.network(), SIDES, Course(seconds=2.0))
        track.race(SHALLOW, Network.parse(INCAST), SIDES, Course(seconds=25.0, rounds=5, steps=100))
    for lesson, seed in _lessons(quick):
        notes.tell(f"{lesson.task}, {lesson.variant}, seed {seed}")
        teach(notes, lesson, seed)


def _load(notes: Notes) -> Load:
    """The model's gradients and computing time, recorded once per run."""
    told = sections.find(notes.lines, kind="load")
    if told is not None:
        return Load(tuple(map(tuple, told["shapes"])), told["compute_s"], told["batch"])
    load = record(TASK, BATCH)
    notes.add({"kind": "load", "task": TASK} | asdict(load))
    return load


@dataclass(frozen=True, slots=True)
class _Track:
    """Where races are noted, and the load that all of them carry."""

    notes: Notes
    load: Load

    def race(self, place: str, network: Network, labels: Sequence[str], course: Course) -> None:
        """Races, unless the notes have it already."""
        if self.notes.has(kind="race", place=place):
            return
        self.notes.tell(f"{place}: {network.words}")
        bound_s = WORKERS * self.load.gradient_bytes * 8 / SERVER_BITS
        facts: dict[str, object] = {"kind": "race", "place": place}
        facts |= {"network": str(network), "words": network.words}
        facts |= {"bound_s": bound_s, "samples": WORKERS * self.load.batch}
        for cell in race(network, WORKERS, [side(label) for label in labels], self.load, course):
            self.notes.add(facts | asdict(cell))


#: By name in the report: settings of `ltp`; the paper's fraction, so that much is lost.
VARIANTS = {
    "reliable": ", lossless=True",
    "ltp": "",
    "lost is returned": ", fraction=0.8",
    "lost is dropped": ", fraction=0.8, return_lost=False",
    "dropped, ÷ delivered": ", fraction=0.8, return_lost=False, divide_by='delivered'",
    "returned, ÷ delivered": ", fraction=0.8, divide_by='delivered'",
}
#: Steps per task: enough for the reliable run to have levelled off.
STEPS = {"digits": 300, "fashion-mnist": 250}
LOSSY = "loss=5%"


def _lessons(quick: bool) -> Iterator[tuple[Lesson, int]]:
    tasks = {"digits": 16} if quick else STEPS
    variants = ("reliable", "ltp") if quick else tuple(VARIANTS)
    for task, steps in tasks.items():
        for variant in variants:
            lesson = Lesson(task, variant, f"ltp(server=0{VARIANTS[variant]})", LOSSY, steps)
            yield from ((lesson, seed) for seed in SEEDS[: 1 if quick else None])


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    races = [line for line in lines if line["kind"] == "race"]
    parts = [Section("Goals", tables=[verdicts(lines)]), _throughput(races)]
    if any(line["place"] == SHALLOW for line in races):
        parts.append(_incast([line for line in races if line["place"] == SHALLOW]))
    if lessons := [line for line in lines if line["kind"] == "school"]:
        parts.append(sections.learned(lessons))
    parts.append(Section("To keep in mind", words=[*_words(lines), *sections.failures(races)]))
    lead = f"{WORKERS} workers push gradients to a server and get their average back: LTP beside kernel TCP."
    return Study("LTP: gradients do not wait for the last packet", lead, parts)


def _throughput(races: Sequence[Line]) -> Section:
    there = [place.name for place in GRID if sections.find(races, place=place.name)]
    panels = {}
    for round_trip in ROUND_TRIPS_MS:
        names = [Place(loss, round_trip).name for loss in LOSSES]
        if any(name in there for name in names):
            panels[f"round trip {round_trip} ms"] = {
                label: [_speed(sections.find(races, place=name, side=label)) for name in names]
                for label in SIDES
            }
    plots = []
    if panels:
        figure = charts.over_conditions(panels, LOSSES, ("packets lost (%)", "samples per second"))
        plots.append(Plot("throughput", "Training throughput over loss, per round trip", svg(figure)))
    tables = [
        sections.speeds(races, there, SIDES),
        sections.tails(races, there, SIDES),
        sections.exchanges(races, there, OURS),
    ]
    words = ["Rows are packets lost, and the round trip. ×4: four connections per pair of ranks, else one."]
    return Section("Throughput", words, plots, tables)


def _speed(line: Line | None) -> float | None:
    return None if line is None else sections.speed(line)


def _incast(races: Sequence[Line]) -> Section:
    steps = {line["side"]: line["steps_s"] for line in races if line["steps_s"]}
    figure = charts.distributions(steps, "step time (s)")
    rows = []
    for label, taken in steps.items():
        half, most = sections.quantile(taken, 0.5), sections.quantile(taken, 0.99)
        rows.append([label, str(len(taken)), *map(sections.number, (half, most, most / half))])
    table = Table("Step times", ["", "steps", "median (s)", "99th percentile (s)", "ratio"], rows)
    title = "Step times where eight senders meet a short queue"
    words = [f"{races[0]['words']}, and no other loss than that of full queues."]
    return Section("Incast", words, [Plot("incast", title, svg(figure))], [table])


def _words(lines: Sequence[Line]) -> Iterator[str]:
    load = sections.find(lines, kind="load")
    if load is not None:
        yield (
            f"Gradients are as large as those of the {load['task']} model. Computing is a sleep of "
            f"{1000 * load['compute_s']:.1f} ms, what {load['batch']} samples took one process alone."
        )
    yield (
        "All sides of a row ran in the same processes over the same links, in turns; the first step of a "
        "turn is not counted, unless it took more than 2 s. Fewer than five steps are said in the table."
    )
    yield (
        "The link bound is what all gradients take through the server's link in one direction, without "
        "headers; the way back can overlap with it, as the link carries both ways at once."
    )
    if lesson := sections.find(lines, kind="school"):
        yield (
            f"Trainings: 4 workers and a server; {lesson['words']}. The reliable run is LTP that loses "
            "nothing, with the same seeds. Below the row ltp, transfers may end at 80 %, as in the paper. ÷ "
            "delivered: each number is divided by those who delivered it, else by all."
        )


SYSTEM = System(
    "LTP, a loss-tolerant transport",
    "arXiv 2305.04279, 2023",
    "ltp(server=0)",
    experiment,
    study,
)
