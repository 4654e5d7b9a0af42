"""Goals and tables of the experiment on several messages per worker. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tweed.experiments.notes import Line, find, values, where
from tweed.report.comparison import Goal, goals, missing, number
from tweed.report.study import Section, Study, Table

#: The day since when the goals stand.
FIXED = "2026-11-22"
WORKERS, LOAD = 20, 3
MODELS = ((0.1, 10.0), (0.01, 10.0), (0.1, 2.0))
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


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    parts = [Section("Goals", tables=[goals(_goals(lines), fixed=FIXED)])]
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
        "Live workers that send several messages are not there yet.",
    )
    return Section("To keep in mind", words=words)
