"""The report of the experiment on MultiTree. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import product

from tweed.report import charts
from tweed.report.comparison import number
from tweed.report.notes import Line, find, values, where
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.simulate import models
from tweed.systems.multitree.report_bounds import beside_bounds, decimals
from tweed.systems.multitree.report_goals import verdicts
from tweed.systems.multitree.schedules import BEST, LARGE, NETWORKS, SIZES, TRAINED, Cell, Times, ranks, weak

#: What was there before MultiTree.
BEFORE = ("ring", "ring_2d", "halving_doubling", "hdrm", "double_binary_tree", "binomial_tree")
#: Drawn; the tables have all.
DRAWN = (BEST, "multitree", "ring", "ring_2d", "double_binary_tree", "halving_doubling")
BOUNDS = {"links": "bound: all links", "cut": "bound: the worst cut", "phased": "two phases: cuts of both"}
SHOWN = (
    ("grids", ("torus 4x4", "torus 8x8", "mesh 8x8")),
    ("switches", ("fat-tree 64", "BiGraph 32", "BiGraph 64")),
)

WORDS = (
    "All times are simulated: links of 16 GB/s and 150 ns, a head of 16 bytes per message, no time for "
    "arithmetic and none per message. The executor that runs live sends whatever is ready; nobody waits for "
    "a step to end. From 2 MiB on chunks cross whole or in the engine's slices, whichever is quicker. With "
    "packets and in models' layers they cross whole; models' layers and weak scaling have the fewest pieces. "
    "The paper's own claims are judged with whole chunks.",
    "The paper counts flits and cycles, with buffers that hold 318 flits; here queues never overflow.",
    "D/b is the time in which the whole buffer would cross one link once.",
)


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    lead = (
        "Which schedule for which network: MultiTree, what was there before, what came after, and the bounds."
    )
    return Study("MultiTree: the schedule fits the network", lead, sections(lines))


def sections(lines: Sequence[Line]) -> list[Section]:
    """Claims, times over sizes, bounds, scaling, training, and what is to be kept in mind."""
    times = Times(lines)
    parts = [
        Section("Claims", tables=[verdicts(lines)]),
        _large(lines, times),
        _sizes(times),
        *beside_bounds(lines, times),
        _scaling(times),
        _training(times),
        _flow(Times(lines, sliced=False)),
        _straggling(lines),
        _growth(lines),
    ]
    return [*(part for part in parts if part.tables or part.plots), Section("To keep in mind", words=WORDS)]


def _large(lines: Sequence[Line], times: Times) -> Section:
    """A column per network: each builder's time for the largest size, and the bounds."""
    names = [name for name in times.networks() if name in NETWORKS and LARGE in times.sizes(name)]
    builders = list(dict.fromkeys(side for name in names for side in times.builders(name) if side != BEST))
    rows = [
        [side, *(decimals(times.share(Cell(name, "all_reduce", side), LARGE)) for name in names)]
        for side in (*builders, BEST)
    ]
    bounds = [find(lines, kind="bound", network=name, collective="all_reduce") or {} for name in names]
    for key, words in BOUNDS.items():
        rows.append([words, *(decimals(bound.get(key)) for bound in bounds)])
    shares = [times.share(Cell(name, "all_reduce", BEST), LARGE) for name in names]
    reached = [_reached(bound, share) for bound, share in zip(bounds, shares, strict=True)]
    rows.append(["speed reached, of the possible", *reached])
    table = Table("All-reduce of 64 MiB, in D/b (less is better)", ["", *names], rows)
    limits = [f"{name}: {bound['why']}." for name, bound in zip(names, bounds, strict=True) if bound]
    if not names:
        return Section("Large messages")
    drawn: dict[str, dict[str, float]] = {name: {} for name in names}
    for name, side in product(names, DRAWN):
        if (share := times.share(Cell(name, "all_reduce", side), LARGE)) is not None:
            drawn[name][side] = share
    marks = {name: _most(bound) for name, bound in zip(names, bounds, strict=True) if bound}
    figure = svg(charts.levels(drawn, marks, "time for 64 MiB (D/b)"))
    plot = Plot("large", "All-reduce of 64 MiB beside the bound", figure)
    limit = ["What limits: " + " ".join(limits)] if limits else ()
    return Section("Large messages", limit, [plot], [table])


def _most(bound: Line) -> float:
    return float(max(bound["links"], bound["cut"]))


def _reached(bound: Line, share: float | None) -> str:
    return "–" if not bound or share is None else f"{_most(bound) / share:.1%}"


def _sizes(times: Times) -> Section:
    plots = []
    for name, networks in SHOWN:
        panels = {
            network: {side: points for side in DRAWN if (points := _speeds(times, network, side))}
            for network in networks
            if len(times.sizes(network)) > 1
        }
        if panels:
            labels = ("buffer (MiB)", "speed (GB/s of buffer)")
            figure = charts.curves(panels, labels, log_x=True, log_y=True)
            plots.append(Plot(name, f"Speed of an all-reduce over its size: {name}", svg(figure)))
    tables = [_winners(times), _before(times)] if plots else []
    return Section("Over sizes", plots=plots, tables=tables)


def _speeds(times: Times, network: str, side: str) -> list[tuple[float, float]]:
    seconds = times.of(Cell(network, "all_reduce", side))
    return [(size / 2**20, size / seconds[size] / 1e9) for size in _round(sorted(seconds))]


def _round(sizes: Sequence[int]) -> list[int]:
    """The sizes of the experiment, without those of models' layers."""
    return [size for size in sizes if size in SIZES]


def _winners(times: Times) -> Table:
    """Who is quickest at each size, and how much quicker than MultiTree."""

    def cell(name: str, size: int) -> str:
        ours, theirs = (times.seconds(Cell(name, "all_reduce", side), size) for side in (BEST, "multitree"))
        factor = f" {theirs / ours:.2f}×" if ours and theirs else ""
        return f"{times.winner(name, 'all_reduce', size)}{factor}" if ours else "–"

    return _over_sizes("The quickest, and its factor over MultiTree", times, cell)


def _before(times: Times) -> Table:
    """The quickest of what was there before at each size, and MultiTree's factor over it."""

    def cell(name: str, size: int) -> str:
        ours = times.seconds(Cell(name, "all_reduce", "multitree"), size)
        timed = ((times.seconds(Cell(name, "all_reduce", side), size), side) for side in BEFORE)
        known = [(seconds, side) for seconds, side in timed if seconds]
        if not ours or not known:
            return "–"
        seconds, side = min(known)
        return f"{side} {seconds / ours:.2f}×"

    title = (
        "The quickest of what was there before MultiTree, and MultiTree's factor over it; below 1 it loses"
    )
    return _over_sizes(title, times, cell)


def _over_sizes(title: str, times: Times, cell: Callable[[str, int], str]) -> Table:
    names = [name for name in times.networks() if len(_round(times.sizes(name))) > 1]
    sizes = sorted({size for name in names for size in _round(times.sizes(name))})
    head = ["", *(f"{size >> 10} KiB" if size < 2**20 else f"{size >> 20} MiB" for size in sizes)]
    return Table(title, head, [[name, *(cell(name, size) for size in sizes)] for name in names])


def _scaling(times: Times) -> Section:
    names = [name for name in times.networks() if weak(name) in times.of(Cell(name, "all_reduce", BEST))]
    names.sort(key=ranks)
    taken: dict[str, dict[str, float]] = {}
    for name in names:
        for side in times.builders(name):
            seconds = times.seconds(Cell(name, "all_reduce", side), weak(name))
            if seconds is not None:
                taken.setdefault(side, {})[name] = 1e3 * seconds
    plots = []
    if len(names) > 1:
        shown = {side: taken[side].items() for side in DRAWN if side in taken}
        panels = {side: [(float(ranks(name)), took) for name, took in found] for side, found in shown.items()}
        figure = charts.curves({"tori": panels}, ("ranks", "all-reduce of 375 KiB per rank (ms)"), True, True)
        plots = [Plot("scaling", "Weak scaling on tori", svg(figure))]
    rows = [[name, *(decimals(side.get(name)) for side in taken.values())] for name in names]
    table = Table("All-reduce of 375 KiB per rank, in milliseconds", ["", *taken], rows)
    return Section("Weak scaling", plots=plots, tables=[table] if rows else [])


def _training(times: Times) -> Section:
    tables = []
    for overlap in (False, True):
        sides = [("ring", True), ("ring_2d", True), ("multitree", True), ("multitree", False), (BEST, False)]
        rows = []
        for model in models.MODELS:
            steps = [times.step(Cell(TRAINED, "all_reduce", *side), model, overlap) for side in sides]
            if all(step is not None for step in steps):
                known = [step for step in steps if step]
                cells = [f"{1e3 * step.seconds:.2f} ({step.waiting_s / step.seconds:.0%})" for step in known]
                rows.append([model, f"{1e3 * known[0].compute_s:.2f}", *cells])
        flows = (f"{side}, {'packets' if packets else 'messages'}" for side, packets in sides)
        how = (
            "Each exchange starts when its gradient is there"
            if overlap
            else "Exchanges after the backward pass"
        )
        if rows:
            head = ["", "arithmetic", *flows]
            tables.append(Table(f"{how}: step in milliseconds (share of it that waits)", head, rows))
    words = [
        f"{TRAINED}, 16 samples per rank, on the paper's accelerator: 16 systolic arrays of 32 × 32, 1 GHz. "
        "Each layer has an all-reduce of its own, one after the other, from the last layer on. Layers: "
        + "; ".join(f"{name}: {models.MODELS[name]().source}" for name in models.MODELS)
        + "."
    ]
    return Section("Training", words if tables else (), tables=tables)


def _flow(times: Times) -> Section:
    rows = []
    for name in times.networks():
        for side in times.builders(name):
            pair = [times.of(Cell(name, "all_reduce", side, packets)) for packets in (True, False)]
            sizes = [size for size in _round(sorted(pair[0])) if size in pair[1]]
            if sizes:
                gains = [f"{pair[0][size] / pair[1][size] - 1:.1%}" for size in (sizes[0], sizes[-1])]
                rows.append([f"{name}, {side}", *gains])
    table = Table("Time saved by one head per message instead of per 256 B", ["", "32 KiB", "64 MiB"], rows)
    return Section("Flow control by messages", tables=[table] if rows else [])


def _straggling(lines: Sequence[Line]) -> Section:
    runs = where(lines, kind="straggling")
    rows = []
    for builder in values(runs, "builder"):
        mine = where(runs, builder=builder)
        even, uneven = (1e6 * statistics.median(line[key] for line in mine) for key in ("even_s", "uneven_s"))
        rows.append([builder, f"{even:.0f}", f"{uneven:.0f}", f"{uneven / even:.2f}×"])
    words = [
        "2 MiB; every rank starts up to 50 µs late, and each with probability 0.2 sends up to three times as "
        f"slowly: median over {len({line['seed'] for line in runs})} seeds."
    ]
    table = Table("Microseconds", ["", "even", "uneven", "factor"], rows)
    return Section("Late and slow ranks", words if rows else (), tables=[table] if rows else [])


def _growth(lines: Sequence[Line]) -> Section:
    grown = where(lines, kind="building")
    rows = [
        [one["builder"], f"{one['ranks']:,}", f"{one['sends']:,}", number(one["seconds"])] for one in grown
    ]
    head = ["", "ranks", "sends", "processor seconds, proof included"]
    return Section("Growing trees", tables=[Table("An all-gather on a torus", head, rows)] if rows else [])
