"""Goals and tables of the experiment on split learning. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil
from statistics import fmean, median

from tweed.report import charts
from tweed.report.comparison import Goal, goals, missing, number, of_points, with_range
from tweed.report.notes import Line, differences, find, mean_curve, values, where
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.systems.epsl.contenders import CLIENTS, DATA, PARTITIONS, PHIS

#: The day since when the goals stand.
FIXED = "2026-11-28"
#: How many points below phi = 0 a share may be.
POINTS = {"0.5": 1, "1": 3, "1 to 0": 1}
#: An accuracy that is to be reached: so much below what phi = 0 has in the end. Steps between two looks.
BELOW, EVERY = 0.02, 25
#: Schemes, from quick to slow as the paper has them.
SCHEMES = ("phi = 1", "phi = 0.5", "phi = 0", "federated", "sequential")
#: Contenders over live links.
LIVE = {
    "0": "phi = 0, parallel split learning",
    "0.5": "phi = 0.5, broadcast",
    "1": "phi = 1, broadcast",
    "unicast": "phi = 1, a copy for each",
    "codecs": "phi = 0, codecs",
}


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    found = [*_counted(lines), *_learned(lines), *_allocated(lines)]
    found += [*_rounds(lines), *_reached(lines), *_live(lines)]
    parts = [Section("Goals", tables=[goals(found, fixed=FIXED)])]
    parts += [_accuracy(lines), _round_table(lines), _times(lines), _links(lines), _words()]
    lead = "Clients have a model's lower layers; the server averages gradients over them and broadcasts."
    return Study("Split learning", lead, parts)


def _counted(lines: Sequence[Line]) -> Iterator[Goal]:
    goal = "rows that the server propagates backwards, and that it sends: m + C (b - m), exactly"
    found = where(lines, kind="rows")
    right = [_expected(line) == line["backward"] == line["down"] for line in found]
    yield (goal, f"{sum(right)} of {len(right)} settings", all(right)) if found else missing(goal)


def _expected(line: Line) -> int:
    m = ceil(line["phi"] * line["batch"] - 1e-9)
    return int(m + line["clients"] * (line["batch"] - m))


def _learned(lines: Sequence[Line]) -> Iterator[Goal]:
    for data in DATA:
        for part in PARTITIONS:
            for phi, points in POINTS.items():
                words = f"{points} point{'s' * (points > 1)}"
                goal = f"{data}, {_dealt(part)}: phi = {phi} within {words} of phi = 0"
                yield of_points(goal, _apart(lines, data, part, phi), -points)


def _apart(lines: Sequence[Line], data: str, part: str, phi: str) -> list[float]:
    key = "accuracy" if part == "iid" else "own"
    mine, theirs = (_trainings(lines, data, part, one) for one in (phi, "0"))
    return differences(mine, theirs, lambda line: float(line[key]))


def _trainings(lines: Sequence[Line], data: str, part: str, phi: str, clients: int = 5) -> list[Line]:
    return where(lines, kind="training", data=data, partition=part, phi=phi, clients=clients)


def _dealt(part: str) -> str:
    return "iid" if part == "iid" else "by label"


def _allocated(lines: Sequence[Line]) -> Iterator[Goal]:
    found = where(lines, kind="drop")
    goal = "100 places of clients: no block of the descent makes a round longer"
    kept = sum(line["monotone"] for line in found)
    yield (goal, f"{kept} of {len(found)}", kept == len(found)) if found else missing(goal)
    for other in ("random", "uniform", "fixed cut"):
        goal = f"100 places of clients: never slower than {_named(other)}"
        ratios = [line[other] / line["found"] for line in found]
        words = f"{median(ratios):.2f}× as quick, {min(ratios):.2f}× at least" if ratios else ""
        yield (goal, words, min(ratios) >= 1 - 1e-9) if ratios else missing(goal)
    goal = "3 clients, 6 subchannels, 3 cuts: within 5 % of the best of all allocations"
    worst = max((line["ratio"] for line in where(lines, kind="tiny")), default=None)
    yield (goal, f"{worst - 1:.1%} at most", worst <= 1.05) if worst else missing(goal)


def _named(other: str) -> str:
    return "the middle cut" if other == "fixed cut" else f"{other} subchannels at equal power"


def _rounds(lines: Sequence[Line]) -> Iterator[Goal]:
    goal = f"simulated rounds: {' < '.join(SCHEMES)}, at 2, 5, 10 and 20 clients"
    found = where(lines, kind="rounds")
    means = {many: _means(where(found, clients=many)) for many in values(found, "clients")}
    right = [many for many, took in means.items() if all(a < b for a, b in pairwise(took))]
    words = f"so at {', '.join(map(str, right)) or 'none'} of {', '.join(map(str, means))}"
    yield (goal, words, len(right) == len(means)) if found else missing(goal)
    goal = "the gap between phi = 0 and phi = 1 widens with the clients"
    gaps = [took[2] / took[0] for took in means.values()]
    is_wider = all(a < b for a, b in pairwise(gaps))
    yield (goal, ", ".join(f"{gap:.2f}×" for gap in gaps), is_wider) if len(gaps) > 1 else missing(goal)


def _means(lines: Sequence[Line]) -> list[float]:
    return [fmean(line[scheme] for line in lines) for scheme in SCHEMES]


def _reached(lines: Sequence[Line]) -> Iterator[Goal]:
    for many in CLIENTS:
        goal = f"{many} clients, simulated: 1.5× as quick to an accuracy as phi = 0"
        took = {phi: _seconds(lines, phi, many) for phi in PHIS}
        base, others = took["0"], {phi: one for phi, one in took.items() if phi != "0" and one}
        if base is None or not others:
            yield missing(goal)
            continue
        best = min(others, key=lambda phi: others[phi] or 0.0)
        ratio = base / (others[best] or base)
        yield goal, f"{ratio:.2f}× (phi = {best})", ratio >= 1.5


def _seconds(lines: Sequence[Line], phi: str, clients: int) -> float | None:
    """Until the mean curve is for the first time at what is to be reached; None: never."""
    curve, base = (mean_curve(_trainings(lines, DATA[0], "iid", one, clients), "curve") for one in (phi, "0"))
    if not curve or not base:
        return None
    times = list(_clock(lines, phi, clients, len(curve)))
    goal = base[-1] - BELOW
    return next((at for at, reached in zip(times, curve, strict=False) if reached >= goal), None)


def _clock(lines: Sequence[Line], phi: str, clients: int, looks: int) -> Iterator[float]:
    """Simulated seconds at each look."""
    took = {line["phi"]: line["seconds"] for line in where(lines, kind="trained round", clients=clients)}
    at = 0.0
    for look in range(looks if took else 0):
        now = (1.0 if 3 * look < 2 * looks else 0.0) if phi == "1 to 0" else float(phi)
        at += EVERY * took[now]
        yield at


def _live(lines: Sequence[Line]) -> Iterator[Goal]:
    for place, words in (
        ("server", "the server's uplink is"),
        ("both ways", "the server's port is, both ways,"),
    ):
        for phi in ("0.5", "1"):
            goal = f"live, {words} short: phi = {phi} with multicast 1.5× as quick a step as phi = 0"
            yield _quicker(lines, place, phi, goal, 1.5)
    goal = "live, uplinks are short: codecs 1.5× as quick a step"
    yield _quicker(lines, "uplinks", "codecs", goal, 1.5)
    goal = "live, uplinks are short: phi = 1 brings nothing, within 15 %"
    base, mine = (find(lines, kind="live", place="uplinks", how=how) for how in ("0", "1"))
    if base is None or mine is None:
        yield missing(goal)
        return
    ratio = median(base["steps_s"]) / median(mine["steps_s"])
    yield goal, f"{ratio:.2f}×", ratio <= 1.15


def _quicker(lines: Sequence[Line], place: str, how: str, goal: str, least: float) -> Goal:
    base, mine = (find(lines, kind="live", place=place, how=one) for one in ("0", how))
    if base is None or mine is None:
        return missing(goal)
    ratio = median(base["steps_s"]) / median(mine["steps_s"])
    return goal, f"{ratio:.2f}×", ratio >= least


def _accuracy(lines: Sequence[Line]) -> Section:
    rows = []
    for data in values(where(lines, kind="training"), "data"):
        for part in PARTITIONS:
            for phi in PHIS:
                if found := _trainings(lines, data, part, phi):
                    whole, own = (f"{fmean(line[key] for line in found):.1%}" for key in ("accuracy", "own"))
                    apart = with_range(_apart(lines, data, part, phi)) if phi != "0" else "–"
                    rows.append([f"{data}, {_dealt(part)}", phi, f"{found[0]['lr']:g}", whole, own, apart])
    head = ["", "phi", "best rate", "all classes", "a client's own classes", "points against phi = 0"]
    return Section("What is learned, 5 clients", tables=[Table("", head, rows)])


def _round_table(lines: Sequence[Line]) -> Section:
    found = where(lines, kind="rounds")
    rows = [
        [str(many), *(number(one) for one in _means(where(found, clients=many)))]
        for many in values(found, "clients")
    ]
    title = "Mean seconds in which all clients train on a batch of 64, by the model"
    return Section("Simulated rounds", tables=[Table(title, ["clients", *SCHEMES], rows)])


def _times(lines: Sequence[Line]) -> Section:
    rows, panels = [], {}
    for many in CLIENTS:
        sides = {}
        for phi in PHIS:
            curve = mean_curve(_trainings(lines, DATA[0], "iid", phi, many), "curve")
            if curve and where(lines, kind="trained round", clients=many):
                sides[f"phi = {phi}"] = list(zip(_clock(lines, phi, many, len(curve)), curve, strict=True))
        if sides:
            panels[f"{many} clients"] = sides
            rows.append([str(many), *(number(_seconds(lines, phi, many)) for phi in PHIS)])
    title = "Simulated seconds until two points below what phi = 0 has in the end"
    plots = []
    if panels:
        figure = charts.curves(panels, ("simulated seconds", "test accuracy"))
        plots.append(Plot("time", "What is learned over simulated time", svg(figure)))
    table = Table(title, ["clients", *(f"phi = {phi}" for phi in PHIS)], rows)
    return Section("Time to an accuracy", plots=plots, tables=[table])


def _links(lines: Sequence[Line]) -> Section:
    rows = [
        [
            line["words"],
            LIVE[line["how"]],
            f"{1000 * median(line['steps_s']):,.0f}",
            f"{line['down_bytes'] / 1e3:,.0f}",
            f"{line['up_bytes'] / 1e3:,.0f}",
        ]
        for line in where(lines, kind="live")
    ]
    head = ["network", "", "step (ms)", "kB that the server sends", "kB that a client sends"]
    return Section("Live", tables=[Table("Medians; bytes per step as links count them", head, rows)])


def _words() -> Section:
    words = (
        "Trained: a perceptron 784-64 at clients and 64-256-256-10 at the server, 5 to 20 clients with "
        "batches of 32, 500 steps of SGD with momentum 0.9. Each share has its own best learning rate, "
        "searched by factors of 3 with a seed that is not judged. 1 to 0: phi is 1 in two thirds of the "
        "steps.",
        "By label: each client has two shards of the sorted labels, of two to four classes. Clients keep "
        "their own layers, so each is judged by test samples of its own classes. After a first look their "
        "rates are searched by that, too, over three seeds: with one, a collapsed training was best.",
        "An average over clients mixes rows that have nothing to do with each other. Of the product of two "
        "averages, which is what a weight learns from, a row's own part is one of C; the rest is noise.",
        "Simulated: clients within 200 m, 20 subchannels of 10 MHz, Shannon's rates with Rayleigh fading, "
        "clients of 16 to 26 GFLOP/s and a server of 160. Rounds have the layer sizes of ResNet-18; each "
        "scheme has its best allocation and cut. Time to an accuracy has the trained model at its cut.",
        "With more clients the best cut moves layers to them, as one server computes for all: so from 10 "
        "clients on there is ever less at the server that an average could save.",
        "Live: 6 clients and the server are ranks in namespaces, links by token buckets; a broadcast is UDP "
        "multicast, and what a client misses comes over its link. Computing is this machine's.",
        "A port that is short both ways gains less: without a broadcast clients get their gradients one "
        "after the other, and the first send their next activations while the last still wait.",
    )
    return Section("To keep in mind", words=words)
