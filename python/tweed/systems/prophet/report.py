"""Goals and tables of the experiment on Prophet. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, product

from tweed.report import charts
from tweed.report.comparison import Goal, goals, missing
from tweed.report.notes import Line, find, values, where
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.systems.prophet.contenders import (
    BATCH,
    BURST_BYTES,
    FAST,
    ONLINE,
    PUBLISHED,
    RANKS,
    SERVER,
    SIDES,
    TUNED,
    TURN_S,
)

#: The day since when the goals stand.
FIXED = "2026-11-28"
#: Times that differ by less are equal.
ALIKE = 1e-3
#: Drawn; the tables have all.
DRAWN = ("FIFO", "P3", "ByteScheduler, tuned", "Prophet", "Prophet, joined", "urgency")
#: What is set beside the best tuned scheduler.
OURS = ("Prophet", "Prophet, tuned", "Prophet, joined", "ByteScheduler, joined", "urgency")


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    lead = "Which gradient goes first, what it gains, and where: models, rates, what a message costs."
    parts = [Section("Goals", tables=[goals(_goals(lines), fixed=FIXED)])]
    parts += [_steps(lines), _gains(lines), _settings(lines), _sweep(lines), _misled(lines), _words()]
    return Study("Prophet: gradients in blocks", lead, parts)


def seconds(line: Line, side: str) -> float:
    """The seconds of a step of a side."""
    return float(line["sides"][side][0])


def best(line: Line) -> float:
    """The seconds of the best tuned scheduler by priority that sends a message for each piece."""
    return min(seconds(line, side) for side in TUNED)


def gain(line: Line, side: str, over: float | None = None) -> float:
    """The percent by which a side is faster than the best tuned scheduler, or than so many seconds."""
    return 100 * ((best(line) if over is None else over) / seconds(line, side) - 1)


def _goals(lines: Sequence[Line]) -> Iterator[Goal]:
    steps = where(lines, kind="step")
    yield from _bursts(lines)
    yield from _kept(steps)
    yield from _misled_goals(lines)
    yield from _ranking(steps)
    yield from _published(steps)
    yield from _urgent(steps)
    yield from _costs(lines, steps)
    yield from _outside(lines)


def _bursts(lines: Sequence[Line]) -> Iterator[Goal]:
    line = find(lines, kind="bursts")
    found, flat = (
        "the 12 bursts of ResNet-50's published profile are found in every trace with jitter",
        "gradients that come evenly are one burst",
    )
    if line is None:
        yield from (missing(found), missing(flat))
    else:
        yield found, f"{line['right']:,} of {line['traces']:,}", line["right"] == line["traces"]
        yield flat, f"{line['flat']}", line["flat"] == 1


def _kept(steps: Sequence[Line]) -> Iterator[Goal]:
    checks: dict[str, Callable[[Line], bool]] = {
        "Prophet: when a burst begins, at most one piece of lower priority is in flight": (
            lambda line: line["audit"]["overlap"] <= 1
        ),
        "Prophet: the link is free only if nothing waits, or the next piece would overrun": (
            lambda line: line["audit"]["held"] == 0
        ),
        "Prophet: the link is free for a smaller share of time than under P3": (
            lambda line: line["audit"]["idle"] <= line["p3_idle"]
        ),
        "Prophet: after the last gradient all goes strictly by layer": lambda line: line["audit"]["by_layer"],
        "Prophet: every byte crosses once, so that sums are those of FIFO": lambda line: line["audit"][
            "once"
        ],
    }
    for goal, check in checks.items():
        yield _everywhere(goal, [check(line) for line in steps])


def _everywhere(goal: str, held: Sequence[bool]) -> Goal:
    """A goal that is to hold in each place."""
    return (goal, f"{sum(held)} of {len(held)} places", all(held)) if held else missing(goal)


def _misled_goals(lines: Sequence[Line]) -> Iterator[Goal]:
    for shares, most in (((0.8, 1.2), 3), ((0.5, 2.0), 10)):
        off = " or ".join(f"{share:g}" for share in shares)
        goal = f"Prophet: told {off} times the rate, a step takes at most {most} % longer"
        told = [line for share in shares for line in where(lines, kind="misled", share=share)]
        worst = max((100 * (line["ratio"] - 1) for line in told), default=None)
        yield missing(goal) if worst is None else (goal, f"at most {worst:.1f} %", worst <= most)


def _ranking(steps: Sequence[Line]) -> Iterator[Goal]:
    chain = ("Prophet", "ByteScheduler, tuned", "P3", "FIFO")
    for quick, slow in pairwise(chain):
        held = [seconds(line, quick) <= (1 + ALIKE) * seconds(line, slow) for line in steps]
        yield _everywhere(f"{quick} takes at most as long as {slow}", held)


def _published(steps: Sequence[Line]) -> Iterator[Goal]:
    names = {"Prophet": "Prophet as published", "Prophet, tuned": "Prophet, tuned"}
    names["Prophet, joined"] = "Prophet, a block is one message"
    for side, name in names.items():
        goal = f"{name}: 40 % over the best tuned scheduler by priority, with a server"
        yield _somewhere(goal, where(steps, exchange=SERVER), side, 40)


def _somewhere(goal: str, steps: Iterable[Line], side: str, least: float) -> Goal:
    found = max(steps, key=lambda line: gain(line, side), default=None)
    if found is None:
        return missing(goal)
    return goal, f"{gain(found, side):+.0f} % ({_place(found)})", gain(found, side) >= least


def _place(line: Line) -> str:
    fast = ", fast accelerator" if line["arrays"] == FAST else ""
    return (
        f"{line['model']}, {line['exchange']}, {line['gbit']:g} Gbit/s, {line['message_ms']:g} ms per message"
        + fast
    )


def _urgent(steps: Sequence[Line]) -> Iterator[Goal]:
    costly = where(steps, model="ResNet-50", message_ms=1.0, exchange=SERVER)
    goal = "urgency: 90 % over the same with a server on ResNet-50 where a message costs 1 ms, somewhere"
    yield _somewhere(goal, costly, "urgency", 90)
    goal = "urgency: between 0 and 3 % over the same on VGG-19, everywhere"
    gains = [gain(line, "urgency") for line in where(steps, model="VGG-19")]
    within = bool(gains) and -0.1 <= min(gains) and max(gains) <= 3
    yield (goal, f"{min(gains):+.1f} to {max(gains):+.1f} %", within) if gains else missing(goal)
    for side in ("ByteScheduler, joined", "Prophet, joined"):
        held = [seconds(line, "urgency") <= 1.01 * seconds(line, side) for line in steps]
        yield _everywhere(f"urgency takes at most 1 % longer than {side}", held)


def _costs(lines: Sequence[Line], steps: Sequence[Line]) -> Iterator[Goal]:
    held = [seconds(line, ONLINE) <= 1.03 * seconds(line, "ByteScheduler, tuned") for line in steps]
    yield _everywhere("tuned online: at most 3 % longer than the best setting that a search finds", held)
    goal = "tuned online: at most 20 settings are tried"
    tried = max((line["trials"] for line in steps), default=None)
    yield missing(goal) if tried is None else (goal, f"at most {tried}", tried <= 20)
    goal = "Prophet: profile and decisions take less than 1 % of a step's arithmetic"
    shares = [100 * one["decisions_s"] / one["arithmetic_s"] for one in where(lines, kind="overhead")]
    yield (goal, f"at most {max(shares):.2f} %", max(shares) < 1) if shares else missing(goal)


def _outside(lines: Sequence[Line]) -> Iterator[Goal]:
    """Where nothing is to be gained by an order."""
    goal = "gradients below 0.2 or above 5 times as long as arithmetic: less than 5 % over FIFO by any order"
    outer = [line for line in where(lines, kind="sweep") if not 0.2 <= line["ratio"] <= 5]
    gains = [gain(line, side, seconds(line, "FIFO")) for line in outer for side in (*TUNED, "Prophet, tuned")]
    yield (goal, f"at most {max(gains):+.1f} %", max(gains) < 5) if gains else missing(goal)


def _steps(lines: Sequence[Line]) -> Section:
    """A table per model: a server, a message of 0.1 ms."""
    shown = where(lines, kind="step", exchange=SERVER, message_ms=0.1, arrays=PUBLISHED)
    tables, panels = [], {}
    for model in values(shown, "model"):
        mine = where(shown, model=model)
        head = ["", *(f"{line['gbit']:g} Gbit/s" for line in mine)]
        rows = [[side, *(f"{seconds(line, side):.3f}" for line in mine)] for side in (*SIDES, ONLINE)]
        rows.append(["arithmetic alone", *(f"{line['arithmetic_s']:.3f}" for line in mine)])
        tables.append(Table(f"{model}: seconds of a step", head, rows))
        panels[model] = {side: [(one["gbit"], seconds(one, side)) for one in mine] for side in DRAWN}
    plots = []
    if len(panels) > 1:
        figure = charts.curves(panels, ("Gbit/s", "step (s)"), log_x=True, log_y=True)
        plots.append(Plot("steps", "Steps with a server, 0.1 ms per message", svg(figure)))
    return Section("Steps with a server, where a message costs 0.1 ms", plots=plots, tables=tables)


def _gains(lines: Sequence[Line]) -> Section:
    """The range over rates, by what a message costs."""
    steps, tables = where(lines, kind="step"), []
    for exchange, arrays in product(values(steps, "exchange"), (PUBLISHED, FAST)):
        mine = where(steps, exchange=exchange, arrays=arrays)
        if not mine:
            continue
        costs = sorted(values(mine, "message_ms"))
        rows = [
            [f"{model}, {side}", *(_range(where(mine, model=model, message_ms=cost), side) for cost in costs)]
            for model in values(mine, "model")
            for side in OURS
        ]
        fast = ", accelerator that is five times as fast" if arrays == FAST else ""
        title = f"{exchange}{fast}: percent over the best tuned scheduler, over rates"
        tables.append(Table(title, ["", *(f"{cost:g} ms per message" for cost in costs)], rows))
    return Section("What is gained, by what a message costs", tables=tables)


def _range(steps: Sequence[Line], side: str) -> str:
    gains = [gain(line, side) for line in steps]
    return f"{min(gains):+.0f} to {max(gains):+.0f}" if gains else "–"


def _settings(lines: Sequence[Line]) -> Section:
    steps, rows = where(lines, kind="step"), []
    for side in (*(name for name, one in SIDES.items() if one.pieces), ONLINE):
        sizes = [[line["sides"][side][number] for line in steps] for number in (1, 2)]
        rows.append([side, *(_sizes([size for size in found if size]) for found in sizes)])
    title = "Smallest and largest setting that was best, in KB"
    table = Table(title, ["", "pieces", "window"], rows if steps else [])
    return Section("Settings that were best", tables=[table])


def _sizes(sizes: Sequence[int]) -> str:
    return f"{min(sizes) / 1e3:,.0f} to {max(sizes) / 1e3:,.0f}" if sizes else "–"


def _sweep(lines: Sequence[Line]) -> Section:
    tables = []
    for model in values(where(lines, kind="sweep"), "model"):
        mine = where(lines, kind="sweep", model=model)
        rows = [
            [side, *(f"{gain(line, side, seconds(line, 'FIFO')):+.1f}" for line in mine)]
            for side in SIDES
            if side != "FIFO"
        ]
        head = ["", *(f"{line['ratio']:g}" for line in mine)]
        tables.append(Table(f"{model}: percent over FIFO, by gradients over arithmetic in time", head, rows))
    return Section("Where an order matters", tables=tables)


def _misled(lines: Sequence[Line]) -> Section:
    told, rows = where(lines, kind="misled"), []
    for model in values(told, "model"):
        mine = where(told, model=model)
        worst = (
            max(100 * (line["ratio"] - 1) for line in where(mine, share=share))
            for share in values(mine, "share")
        )
        rows.append([model, *(f"{each:+.1f}" for each in worst)])
    head = ["", *(f"told {share:g} of the rate" for share in values(told, "share"))]
    title = "Prophet: percent by which a step takes longer, at the worst of all rates"
    return Section("A rate that is measured wrongly", tables=[Table(title, head, rows)])


def _words() -> Section:
    words = (
        f"All times are simulated: {BATCH} samples a step; gradients are there together as soon as they are "
        f"{BURST_BYTES >> 20} MiB; a round trip of {1e3 * TURN_S:g} ms. Every tensor is a gradient, vectors "
        "of normalisations too: 161 of ResNet-50. What a message costs occupies the link, each way.",
        f"The accelerator has {PUBLISHED} systolic arrays of 32 × 32 at 1 GHz: the backward pass of "
        f"ResNet-50 takes 0.20 s, as in Prophet's published profile; the fast one has {FAST}.",
        "A server has as much bandwidth as all workers together, and answers each piece at once. An "
        f"all-reduce goes over a ring of {RANKS} ranks that are alike, so that one order is that of all; "
        "each of its six rounds costs a message.",
        "Prophet as published sends a message for each piece of 4,096,000 bytes. Joined: pieces that follow "
        "each other without a gap are one message, as in a stream, or where a block is sent as one.",
        "Urgency in the engine: an urgent slice overtakes what waits within a stream's window, but not what "
        "is on the wire. Its model is `ByLayer` with pieces of one slice and a window of rate × round trip, "
        "which is not searched; slices are. The engine itself is not run.",
        "Searched settings are the best of a grid over sizes of pieces and windows, or lie beside it by "
        "factors of two, for as long as one is better by 0.1 %. The best tuned scheduler is the best "
        "of P3 and ByteScheduler, searched, and ByteScheduler tuned online; each sends a message for each "
        "piece.",
        "In the simulator the monitor of a link is exact: after a change of rate Prophet's next step is that "
        "of the new rate, and the steps before are those of a rate that is measured wrongly.",
    )
    return Section("To keep in mind", words=words)
