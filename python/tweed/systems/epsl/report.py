"""Goals and tables of the experiment on split learning. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, median

from tweed.experiments.notes import Line, differences, find, mean_curve, values, where
from tweed.report import charts
from tweed.report.comparison import Goal, goals, missing, number, of_points, rule, spread
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table

#: The day since when the goals stand.
FIXED = "2026-11-28"
CLIENTS = (5, 10, 20)
#: Ways, from the shortest round to the longest, as is claimed.
ORDER = ("phi 1", "phi 0.5", "phi 0", "federated", "sequential")


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    found = [*_quality(lines), *_radio(lines), *_sooner(lines), *_live(lines)]
    parts = [Section("Goals", tables=[goals(found, fixed=FIXED)])]
    parts += [_learned(lines), _rounds(lines), _ranks(lines), _words()]
    return Study("EPSL", "Parallel split learning with gradients that are aggregated over clients.", parts)


def _quality(lines: Sequence[Line]) -> Iterator[Goal]:
    mine = where(lines, kind="learned")
    for data, partition in _places(mine):
        here = where(mine, data=data, partition=partition)
        for way, points in (("phi 0.5", 1.0), ("phi 1", 3.0), ("phi 1, then 0", 1.0)):
            goal = f"{data}, {partition}: {way} within {points:g} of phi 0"
            yield of_points(goal, differences(where(here, way=way), where(here, way="phi 0")), -points)


def _places(lines: Sequence[Line]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((line["data"], line["partition"]) for line in lines))


def _radio(lines: Sequence[Line]) -> Iterator[Goal]:
    drops, small = where(lines, kind="drop"), where(lines, kind="small")
    goal = "the search never makes a round longer"
    longer = [line["longer"] for line in drops]
    yield (
        (goal, f"{len(drops)} drops, at most {max(longer):.3f}×", max(longer) <= 1)
        if drops
        else missing(goal)
    )
    for key, words in (("even", "even"), ("random", "random"), ("first cut", "the first cut's")):
        goal = f"shorter than with {words} allocation in every drop"
        ratios = [line[key] / line["seconds"] for line in drops]
        is_met = bool(ratios) and min(ratios) >= 1
        yield (goal, f"{fmean(ratios):.2f}× ({min(ratios):.2f} at least)", is_met) if drops else missing(goal)
    goal = "small cases: within 3 % of exhaustive search"
    over = [line["over"] for line in small]
    yield (
        (goal, f"at most {max(over) - 1:.1%} over, {len(over)} cases", max(over) <= 1.03)
        if over
        else missing(goal)
    )
    mine = where(lines, kind="round")
    for clients in values(mine, "clients"):
        here = [_round_s(mine, clients, way) for way in ORDER]
        words = ", ".join(f"{number(seconds)}" for seconds in here)
        goal = f"{clients} clients: phi 1 < 0.5 < 0 < federated < sequential, seconds of a round"
        yield goal, words, here == sorted(here) and len({*here}) == len(here)
    goal = "sequential over phi 1 grows with the clients"
    gaps = [_round_s(mine, c, "sequential") / _round_s(mine, c, "phi 1") for c in values(mine, "clients")]
    words = ", ".join(f"{gap:.1f}×" for gap in gaps)
    yield (goal, words, gaps == sorted(gaps)) if gaps else missing(goal)


def _round_s(lines: Sequence[Line], clients: int, way: str) -> float:
    return float(median(line[way] for line in where(lines, clients=clients)))


def _sooner(lines: Sequence[Line]) -> Iterator[Goal]:
    """Rounds to an accuracy, by the curves, times simulated seconds of a round."""
    mine = where(where(lines, kind="learned"), data="mnist", partition="iid")
    for clients in CLIENTS:
        goal = f"{clients} clients: 1.5× sooner at the accuracy of phi 0, less a point, than by phi 0"
        here = where(lines, kind="round", clients=clients)
        curves = {way: mean_curve(where(mine, way=way), "curve") for way in ("phi 0", "phi 1")}
        if not here or not curves["phi 0"]:
            yield missing(goal)
            continue
        target = curves["phi 0"][-1] - 0.01
        needed = {
            way: next((i + 1 for i, one in enumerate(curve) if one >= target), None)
            for way, curve in curves.items()
        }
        if needed["phi 1"] is None or needed["phi 0"] is None:
            yield goal, "phi 1 does not reach it", False
            continue
        times = (
            needed["phi 0"]
            * _round_s(here, clients, "phi 0")
            / (needed["phi 1"] * _round_s(here, clients, "phi 1"))
        )
        yield goal, f"{times:.2f}×", times >= 1.5


def _live(lines: Sequence[Line]) -> Iterator[Goal]:
    goal = "live, the server's port is short: phi 1 is 1.5× as quick as phi 0"
    yield _faster(lines, goal, "server's port, phi 0", "server's port, phi 1", 1.5)
    goal = "live, slow uplinks: 8 bits are twice as quick"
    yield _faster(lines, goal, "slow uplinks, phi 0", "slow uplinks, phi 0, 8 bits", 2.0)
    goal = "live, slow uplinks: phi brings nothing (at most 1.1×)"
    ratio = _ratio(lines, "slow uplinks, phi 0", "slow uplinks, phi 1")
    yield (goal, f"{ratio:.2f}×", ratio <= 1.1) if ratio else missing(goal)


def _faster(lines: Sequence[Line], goal: str, slow: str, quick: str, least: float) -> Goal:
    ratio = _ratio(lines, slow, quick)
    return (goal, f"{ratio:.2f}×", ratio >= least) if ratio else missing(goal)


def _ratio(lines: Sequence[Line], slow: str, quick: str) -> float | None:
    one, other = (find(lines, kind="live", case=case) for case in (slow, quick))
    return one["seconds"] / other["seconds"] if one and other else None


def _learned(lines: Sequence[Line]) -> Section:
    mine, rows = where(lines, kind="learned"), []
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for data, partition in _places(mine):
        here = where(mine, data=data, partition=partition)
        for way in values(here, "way"):
            found = where(here, way=way)
            accuracy = spread([100 * line["accuracy"] for line in found])
            rows.append([f"{data}, {partition}", way, f"{found[0]['lr']:g}", accuracy, str(len(found))])
            curve = mean_curve(found, "curve")
            points = [(20.0 * (place + 1), 100 * share) for place, share in enumerate(curve)]
            panels.setdefault(f"{data}, {partition}", {})[way] = points
    plots = []
    if panels:
        figure = charts.curves(panels, ("round", "mean accuracy of clients, percent"))
        plots.append(Plot("learned", "What clients learn, mean over seeds", svg(figure)))
    head = ["data", "way", "learning rate", "accuracy in percent", "seeds"]
    return Section("What is learned", plots=plots, tables=[Table("", head, rows)])


def _rounds(lines: Sequence[Line]) -> Section:
    mine = where(lines, kind="round")
    rows = [
        [f"{clients}", *(number(_round_s(mine, clients, way)) for way in ORDER)]
        for clients in values(mine, "clients")
    ]
    return Section("Simulated rounds", tables=[Table("Median seconds over drops", ["clients", *ORDER], rows)])


def _ranks(lines: Sequence[Line]) -> Section:
    rows = [
        [line["case"], f"{1000 * line['seconds']:.0f}", f"{line['sent'] / 1000:,.0f}"]
        for line in where(lines, kind="live")
    ]
    head = ["case", "round (ms)", "sent by the server (kB)"]
    return Section("Live rounds", tables=[Table("", head, rows)])


def _words() -> Section:
    words = (
        "Five clients with batches of 32, 400 rounds, SGD with momentum 0.9; a perceptron of 128 and 64 "
        "hidden values, cut after the first layer. Each client keeps a lower model of its own, but in "
        "federated and sequential learning. Accuracy is the mean over clients, each with the upper model, on "
        "all test samples.",
        "By label: data are sorted by label and cut, so that each client has two labels; its own lower model "
        "is tested on all ten.",
        "Each way trains at its own best rate, searched by factors of 3 with a seed that is not judged.",
        "Radio: clients at random within 200 m, 20 subchannels of 10 MHz, gains by distance^-3.5 and "
        "Rayleigh fading, 0.2 W per client and 0.6 W in all, the server 1 W per subchannel; computing as of "
        "ResNet-18, clients of 10 to 16 and a server of 5,000 GFLOP/s. These are ours: the paper's are not "
        "known here.",
        "The accuracy of 5 clients stands for 10 and 20 in the times to an accuracy.",
        "Live: six clients, activations of 1,024 values, batches of 64; the server's port has 20 Mbit/s and "
        "others 200, or clients send at 5 Mbit/s. The broadcast goes from client to client, so that the "
        "server sends it about once; no multicast is needed.",
        rule(),
    )
    return Section("To keep in mind", words=words)
