"""Goals and tables of the experiment on several messages per worker. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tweed.report.comparison import Goal, goals, missing, number
from tweed.report.notes import Line, find, mean, values, where
from tweed.report.study import Section, Study, Table
from tweed.systems.straggler_messages.contenders import EVEN, LOAD, MODELS, STRAGGLING, WORKERS

#: The day since when the goals stand.
FIXED = "2026-11-22"
#: Mean seconds of an iteration, by model, that a simulation of its own gave: what is to be met.
KNOWN = {
    "uncoded, one shard": (0.460, 0.373, 1.896),
    "GC": (0.929, 0.661, 3.448),
    "LCC": (0.601, 0.330, 1.797),
    "LCC, messages": (0.417, 0.212, 1.166),
    "uncoded, messages": (0.356, 0.203, 1.112),
    "uncoded, messages, 95 %": (0.301, 0.155, 0.860),
}
#: What is to be 30 % quicker than what.
QUICKER = (("LCC, messages", "LCC"), ("GC, messages", "GC"))
#: Live: the day since when those goals stand, and where workers are.
LIVE_FIXED = "2026-11-24"
#: Fixed sides of those that are chosen from, and the one that is no exact sum.
CHOSEN_FROM, TOLERANT = ("uncoded, one shard", "uncoded, messages", "GC"), "uncoded, messages, 7 of 8"


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    wanted = [goals(_goals(lines), fixed=FIXED), goals(_live_goals(lines), "goal, live", LIVE_FIXED)]
    parts = [Section("Goals", tables=wanted)]
    models = where(lines, kind="model")
    rows = [
        [
            scheme,
            *(_cell(find(models, scheme=scheme, alpha=alpha, mu=mu)) for alpha, mu in MODELS),
        ]
        for scheme in values(models, "scheme")
    ]
    head = ["", *(f"alpha {alpha:g}, mu {mu:g}" for alpha, mu in MODELS)]
    parts.append(Section("An iteration", tables=[Table("Mean seconds (messages until then)", head, rows)]))
    costs = where(lines, kind="cost")
    shares = values(costs, "cost")
    rows = [
        [scheme, *(_cell(find(costs, scheme=scheme, cost=share)) for share in shares)]
        for scheme in values(costs, "scheme")
    ]
    words = ["Of alpha 0.1 and mu 10; what a message costs as a share of the mean time for a shard."]
    table = Table("Mean seconds (messages until then)", ["", *(f"{share:g}" for share in shares)], rows)
    parts.append(Section("What a message costs", words, tables=[table]))
    rows = [
        [
            f"{line['alpha']:g}, {line['mu']:g}, {line['cost']:g}",
            line["chosen"],
            line["best"],
            f"{line['ratio']:.3f}",
        ]
        for line in where(lines, kind="choice")
    ]
    head = ["alpha, mu, cost of a message", "chosen", "best", "time of the chosen beside the best's"]
    parts.append(Section("The choice of scheme and load", tables=[Table("", head, rows)]))
    parts.append(_live(lines))
    lead = f"{WORKERS} workers, {LOAD} shards each: a message after each shard, or one after all."
    return Study("Several messages per worker", lead, [*parts, _words()])


def _goals(lines: Sequence[Line]) -> Iterator[Goal]:
    models = where(lines, kind="model")
    for scheme, known in KNOWN.items():
        found = [find(models, scheme=scheme, alpha=alpha, mu=mu) for alpha, mu in MODELS]
        goal = f"{scheme}: within 3 % of the known means"
        off = [abs(line["seconds"] / true - 1) for line, true in zip(found, known, strict=True) if line]
        yield (goal, f"at most {max(off):.1%} off", max(off) <= 0.03) if off else missing(goal)
    for better, worse in QUICKER:
        pairs = [
            (find(models, scheme=better, alpha=alpha, mu=mu), find(models, scheme=worse, alpha=alpha, mu=mu))
            for alpha, mu in MODELS
        ]
        less = [1 - one["seconds"] / other["seconds"] for one, other in pairs if one and other]
        goal = f"{better}: 30 % less time than {worse}"
        yield (goal, f"{min(less):.0%} to {max(less):.0%} less", min(less) >= 0.3) if less else missing(goal)
    errors = [line["error"] for line in where(lines, kind="lagrange")]
    goal = f"a Lagrange code on the circle, {WORKERS} shards, random arrivals: to 1e-6"
    yield (goal, f"{max(errors):.1e} of {len(errors)}", max(errors) <= 1e-6) if errors else missing(goal)
    ratios = [line["ratio"] for line in where(lines, kind="choice")]
    goal = "the choice of scheme and load is within 10 % of the best fixed one"
    yield (goal, f"at most {max(ratios) - 1:.1%} more", max(ratios) <= 1.1) if ratios else missing(goal)


def _live_goals(lines: Sequence[Line]) -> Iterator[Goal]:
    for better, worse in QUICKER:
        ratio, goal = _ratio(lines, STRAGGLING, better, worse), f"{better}: 30 % less time than {worse}"
        yield (goal, f"{1 - ratio:.0%} less", ratio <= 0.7) if ratio else missing(goal)
    ratio = _ratio(lines, EVEN, "uncoded, messages", "uncoded, one shard")
    goal = "uncoded, messages: at most 5 % more time than with one shard each, where nobody straggles"
    yield (goal, f"{ratio - 1:+.1%}", ratio <= 1.05) if ratio else missing(goal)
    ratios = [_ratio(lines, STRAGGLING, "chosen", side) for side in CHOSEN_FROM]
    goal = "the choice of code and load, with the steps before it: within 10 % of the best fixed one"
    more = [ratio - 1 for ratio in ratios if ratio]
    yield (goal, f"{max(more):+.1%}", max(more) <= 0.1) if more else missing(goal)
    off = [line["off"] for line in where(lines, kind="live") if line["side"] != TOLERANT]
    goal = "exact codes: the model is that of gradient descent in one place, to 1e-5"
    yield (goal, f"at most {max(off):.0e} off", max(off) <= 1e-5) if off else missing(goal)
    for side, most in (("uncoded, messages", 0.0), ("GC, messages", 1e-5)):
        how = f"to {most:g}" if most else "bit for bit"
        goal = f"digits, {side}: the model of plain synchronous training, {how}"
        line = find(lines, kind="digits", side=side)
        yield (goal, f"{line['off']:.0e} apart", line["off"] <= most) if line else missing(goal)


def _ratio(lines: Sequence[Line], place: str, mine: str, theirs: str) -> float | None:
    """The ratio of mean seconds there; None if either was not measured."""
    one, other = (
        mean(where(lines, kind="live", place=place, side=side), "seconds") for side in (mine, theirs)
    )
    return one / other if one and other else None


def _live(lines: Sequence[Line]) -> Section:
    rows = []
    for place in values(where(lines, kind="live"), "place"):
        here = where(lines, kind="live", place=place)
        for side in values(here, "side"):
            found = where(here, side=side)
            known = mean(found, "simulated") if found[0]["simulated"] else None
            late = f"{mean(found, 'late'):.1f}"
            off = f"{max(line['off'] for line in found):.0e}"
            rows.append([place, side, number(mean(found, "seconds")), number(known), late, off])
    head = ["workers", "", "live (s)", "simulated (s)", "late messages", "model off by"]
    digits = [
        [
            line["side"],
            str(line["steps"]),
            f"{line['off']:.0e}",
            f"{line['accuracy']:.2%}",
            f"{line['plain']:.2%}",
        ]
        for line in where(lines, kind="digits")
    ]
    shown = ["", "steps", "apart by", "accuracy", "of plain training"]
    return Section(
        "Live",
        [
            "Eight workers and a server, processes of one machine with two cores; "
            "computing a shard is a sleep. Mean seconds of an iteration over three seeds of 60 steps each."
        ],
        tables=[Table("Least squares", head, rows), Table("Digits", shown, digits)],
    )


def _cell(line: Line | None) -> str:
    return "–" if line is None else f"{number(line['seconds'])} ({line['messages']})"


def _words() -> Section:
    words = (
        "A worker takes equally long for each of its shards within an iteration; computing and sending take "
        'turns. "Messages": one after each shard. "GC, messages" are nested gradient codes, the first '
        'uncoded; "hybrid" sends all but the last shard alone, and then a code over all.',
        "The sum is known when the row of ones is a combination of what came, found by solving for it. "
        '"95 %" stops at a share of the shards, and is no exact sum.',
        "After each shard the messages of nested and hybrid codes span the same as the shards alone: they "
        "know the sum when uncoded messages do, to the iteration.",
        "The known means are those of an own simulation before this one, with 4,000 iterations.",
        "Simulated iterations begin for all at once. A live worker that sleeps when the server has enough "
        "hears of it after its shard, and begins the next step later, or misses it.",
    )
    return Section("To keep in mind", words=words)
