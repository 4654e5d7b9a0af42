"""Goals and tables of the experiment on members that come and go. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from tweed.report.comparison import Goal, goals, missing
from tweed.report.notes import Line, find, where
from tweed.report.plots import MEMBERS, TIME, draw, svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.systems.elastic.checkpoints import OURS as PARTS
from tweed.systems.elastic.checkpoints import TORCH
from tweed.systems.elastic.contenders import OURS, SETTINGS

#: The day since when the goals stand.
FIXED = "2026-11-25"
#: By what members are struck with: later than a step, in the median and always, in seconds. The deadline of
#: what no kernel tells of is 2 s.
LATE_S = {"kill": (0.15, 1.0), "two at once": (0.15, 1.0), "stop": (2.15, 3.0), "cut": (2.15, 3.0)}
WORDS = {
    "kill": "a kill",
    "two at once": "two kills at once",
    "stop": "a SIGSTOP",
    "cut": "a cut, no FIN",
}
#: Times longer than ours, of torchft with these settings.
TORCHFT = dict(zip(SETTINGS, (10.0, 3.0), strict=True))
#: Of what is trained, to that of one process that nothing befalls.
APART = {
    ("digits", "float64"): ("apart", 1e-12, "the model"),
    ("digits", "float32"): ("losses_apart", 1e-3, "the loss of each step"),
    ("fashion-mnist", "float32"): ("test_apart", 0.01, "the test loss"),
}
#: What a survivor holds of memory at the end, times that after ten kills.
HELD = 1.1
#: A join: the median step, times one before; the longest, as a share of a copy that all wait for.
JOIN_STEP, JOIN_PAUSE = 1.3, 1 / 3
#: Times quicker: four donors than one, a result that is replayed than a step that is trained.
DONORS, REPLAY = 3.5, 5.0
#: Where nobody is lost, times a step of a plain group; or so much longer, in seconds.
UNHARMED, UNHARMED_S = 1.03, 0.15e-3
#: Of what the loop stands still for `async_save`.
CHECKPOINT = 0.25


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    lead = (
        "Workers are lost, return and arrive, and training goes on: what each costs, and what the model is."
    )
    parts = [Section("Goals", tables=[goals(verdicts(lines), fixed=FIXED)])]
    tables = [_struck(lines), _unharmed_steps(lines), _trained(lines), _held(lines)]
    tables = [table for table in tables if table.rows]
    parts += [Section("What was measured", plots=list(_members(lines)), tables=tables)]
    return Study("Members that come and go", lead, [*parts, Section("To keep in mind", words=_words(lines))])


def verdicts(lines: Sequence[Line]) -> Iterator[Goal]:
    """Every goal, and whether it was met."""
    for workers in (4, 8):
        for what, bounds in LATE_S.items():
            if workers == 8 or what != "two at once":  # two of four are half of them, which wait
                yield from _late(lines, workers, what, bounds)
    for side, times in TORCHFT.items():
        yield _torchft(lines, side, times)
    for (task, dtype), (key, most, words) in APART.items():
        goal = f"{task}, {dtype}: {words} within {most:g} of a run without kills"
        line = find(lines, kind="trained", task=task, type=dtype)
        yield missing(goal) if line is None else _within(goal, line, key, most)
    yield _kept(lines)
    yield from _join(lines)
    yield from (_donors(lines), _replay(lines), _unharmed(lines))
    goal = f"a checkpoint holds the loop up at most {CHECKPOINT:g} of `async_save`"
    line = find(lines, kind="checkpoints")
    if line is None:
        yield missing(goal)
    else:
        share = statistics.median(line["seconds"][PARTS]) / statistics.median(line["seconds"][TORCH])
        yield goal, f"{share:.2f}", share <= CHECKPOINT


def _late(lines: Sequence[Line], workers: int, what: str, bounds: tuple[float, float]) -> Iterator[Goal]:
    median, most = bounds
    goal = f"{WORDS[what]}, {workers} workers: the step ends at most {median:g} s late (median)"
    always = f"{WORDS[what]}, {workers} workers: at most {most:g} s late, always"
    line = find(lines, kind="struck", side=OURS, workers=workers, what=what)
    if line is None:
        yield from (missing(goal), missing(always))
        return
    late_s = line["late_s"]
    yield goal, f"{statistics.median(late_s):+.3f} s of {len(late_s)}", statistics.median(late_s) <= median
    yield always, f"{max(late_s):+.3f} s", max(late_s) <= most


def _torchft(lines: Sequence[Line], side: str, times: float) -> Goal:
    goal = f"a kill of one of 4: {times:g} times less late than {side}"
    ours = find(lines, kind="struck", side=OURS, workers=4, what="kill")
    theirs = find(lines, kind="struck", side=side, workers=4, what="kill")
    if ours is None or theirs is None:
        return missing(goal)
    late, late_there = (statistics.median(line["late_s"]) for line in (ours, theirs))
    return goal, f"{1e3 * late:.0f} and {1e3 * late_there:.0f} ms", late_there >= times * late


def _within(goal: str, line: Line, key: str, most: float) -> Goal:
    equal = "members equal" if line["equal"] else "members differ"
    words = f"{line[key]:.1e} after {line['kills']} kills, {equal}"
    return goal, words, line[key] <= most and bool(line["equal"])


def _kept(lines: Sequence[Line]) -> Goal:
    goal = f"a survivor's memory at most {HELD:g} times that after ten kills, no more descriptors and threads"
    line = find(lines, kind="trained", task="digits", type="float64")
    if line is None or not line.get("held"):
        return missing(goal)
    (early, *some), (late, *more) = line["held"]
    met = late <= HELD * early and all(now <= then for then, now in zip(some, more, strict=True))
    words = f"{early / 1e6:.0f} and {late / 1e6:.0f} MB, {some[0]} and {more[0]} descriptors"
    return goal, f"{words}, {some[1]} and {more[1]} threads after {line['kills']} kills", met


def _join(lines: Sequence[Line]) -> Iterator[Goal]:
    step = f"a join: the median step at most {JOIN_STEP:g} times one before"
    pause = f"a join: the longest pause at most {JOIN_PAUSE:.2f} of a copy that all wait for"
    equal = "a join: all hold the same bits afterwards"
    line = find(lines, kind="join")
    if line is None:
        yield from (missing(step), missing(pause), missing(equal))
        return
    ratio = statistics.median(line["spans_s"]) / line["plain_s"]
    share = (max(line["spans_s"]) - line["plain_s"]) / line["copied_s"]
    yield step, f"{ratio:.2f}×", ratio <= JOIN_STEP
    yield pause, f"{share:.2f}", share <= JOIN_PAUSE
    yield (equal, "yes" if line["equal"] else "no", line["equal"]) if "equal" in line else missing(equal)


def _donors(lines: Sequence[Line]) -> Goal:
    goal = f"donors behind 20 Mbit/s: four give a state at least {DONORS:g} times as quickly as one"
    one, four = (find(lines, kind=f"{donors} donors") for donors in (1, 4))
    if one is None or four is None:
        return missing(goal)
    factor = one["given_s"] / four["given_s"]
    return goal, f"{factor:.2f}× ({one['given_s']:.1f} and {four['given_s']:.1f} s)", factor >= DONORS


def _replay(lines: Sequence[Line]) -> Goal:
    goal = f"fashion-mnist: a result replayed at least {REPLAY:g} times as quickly as a step is trained"
    line = find(lines, kind="replay")
    if line is None:
        return missing(goal)
    factor = statistics.median(line["trained"]) / statistics.median(line["replayed"])
    return goal, f"{factor:.0f}×", factor >= REPLAY


def _unharmed(lines: Sequence[Line]) -> Goal:
    goal = f"nobody lost: a step at most {UNHARMED:g} times a plain group's, or {1e3 * UNHARMED_S:g} ms more"
    line = find(lines, kind="unharmed")
    if line is None:
        return missing(goal)
    ours, plain = (statistics.median(line[side]) for side in ("members", "plain"))
    words = f"{ours / plain:.3f}× ({1e3 * ours:.1f} and {1e3 * plain:.1f} ms)"
    return goal, words, ours <= max(UNHARMED * plain, plain + UNHARMED_S)


def _struck(lines: Sequence[Line]) -> Table:
    rows = []
    for line in where(lines, kind="struck"):
        late_s = line["late_s"]
        spans = [line["step_s"], statistics.median(late_s), max(late_s), statistics.median(line["back_s"])]
        name = f"{line['side']}, {line['workers']} workers, {WORDS[line['what']]}"
        rows.append([name, f"{len(late_s)}", *(f"{1e3 * span:.0f}" for span in spans)])
    head = ["members", "times", "step (ms)", "later: median (ms)", "most (ms)", "all in again after (ms)"]
    return Table(
        "When all survivors have counted the step within which members are lost, after it was expected",
        head,
        rows,
    )


def _unharmed_steps(lines: Sequence[Line]) -> Table:
    """Over the length of a step."""
    rows = []
    for line in lines:
        if line["kind"].startswith("unharmed"):
            ours, plain = (statistics.median(line[side]) for side in ("members", "plain"))
            rows.append([f"{1e3 * plain:.1f}", f"{1e3 * ours:.1f}", f"{ours / plain:.2f}×"])
    head = ["a step of a plain group (ms)", "of members (ms)", "factor"]
    return Table("What it costs to be members where nobody is lost, 4 workers", head, rows)


def _trained(lines: Sequence[Line]) -> Table:
    rows = [
        [
            f"{line['task']}, {line['type']}, {line['members']} members", f"{line['kills']}",
            f"{line['steps']}", f"{line['epochs']}", f"{line['apart']:.1e}", f"{line['losses_apart']:.1e}",
            f"{line['test_apart']:.1e}" if "test_apart" in line else "", f"{line['seconds']:.0f}",
        ]
        for line in where(lines, kind="trained")
    ]  # fmt: skip
    head = [
        "trained", "kills", "steps", "epochs", "models apart", "losses apart", "test loss apart", "seconds",
    ]  # fmt: skip
    return Table("Beside one process that nothing befalls", head, rows)


def _members(lines: Sequence[Line]) -> Iterator[Plot]:
    """Members over time, where fewest are killed, so that each can be seen; none: the notes are older."""
    known = [line for line in where(lines, kind="trained") if "members_over_time" in line]
    if known:
        line = min(known, key=lambda line: line["kills"])
        rows = [dict(zip(("seconds", "members"), pair, strict=True)) for pair in line["members_over_time"]]
        rows.append(rows[-1] | {"seconds": line["seconds"]})
        title = f"{line['task']}, {line['type']}: {line['kills']} kills"
        yield Plot(
            "members", f"Members over time, {title}", svg(draw({title: rows}, TIME, MEMBERS, "loopback"))
        )


def _held(lines: Sequence[Line]) -> Table:
    line = find(lines, kind="checkpoints")
    seconds = {} if line is None else line["seconds"]
    rows = [
        [side, *(f"{1e3 * value:.1f}" for value in (statistics.median(found), max(found)))]
        for side, found in seconds.items()
    ]
    size = 0 if line is None else line["bytes"] // 10**6
    return Table(
        f"A checkpoint of {size} MB by 4 ranks holds the loop up", ["", "median (ms)", "most (ms)"], rows
    )


def _words(lines: Sequence[Line]) -> list[str]:
    found = [
        "Links have 100 Mbit/s; who is killed, or evicted, comes back and joins. A stop and a cut from all "
        "others last four seconds. tweed takes a second of silence for a loss, whatever the deadline is.",
        "Gradients are computed by a sleep; what is trained runs on loopback, with a learning rate of 0.05 "
        "(digits) or 0.01 and momentum 0.9. Who joins is given 25 Mbit/s "
        "by each of four members, and in the join of donors all that their links have. A result is replayed "
        "beside a step of 16 samples, without its exchange, of one process. Checkpoints are of "
        "ranks that do nothing else: what writing in the background costs later steps is not in it.",
    ]
    if not any(line["side"] in SETTINGS for line in where(lines, kind="struck")):
        found.append("torchft was not installed: `pip install torchft-nightly` puts it beside.")
    return found
