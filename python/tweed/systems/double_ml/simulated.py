"""What is simulated from the measured durations of fits: more slots than there are cores, and bills. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tweed.report.notes import Notes, find
from tweed.systems.double_ml.contenders import CAPS, FOLDS, MEMORIES_MB, PAPER_TREES, SLOTS
from tweed.workloads.double_ml.bill import Platform, coarse, simulate_bill
from tweed.workloads.tasks.simulated import Conditions, simulate_tasks

#: What a process takes to start, and a message to arrive, in seconds.
START_S, LATENCY_S = 0.1, 0.01


def simulated(notes: Notes, tasks: int) -> None:
    """Slots and bills of as many fits as the paper has; the measured durations come over and over.

    Cost: seconds, for the planner with a worker per task.
    """
    loop = find(notes.lines, kind="timed", contender="loop")
    if loop is None:
        return
    taken = loop["tasks_s"]
    times_s = [taken[task % len(taken)] for task in range(tasks)]
    for slots in (*SLOTS, tasks):
        if not notes.has(kind="slots", slots=slots):
            conditions = Conditions(tasks, slots, tasks_s=times_s, start_s=START_S, latency_s=LATENCY_S)
            facts = {"seconds": simulate_tasks(conditions, seed=0).seconds, "work_s": math.fsum(times_s)}
            overhead = {"longest_s": max(times_s), "overhead_s": START_S + 2 * LATENCY_S}
            notes.add({"kind": "slots", "slots": slots, "tasks": tasks, **facts, **overhead})
    scaled = [seconds * PAPER_TREES / loop["trees"] for seconds in times_s]
    for grain, work_s in {"fine": scaled, "coarse": coarse(scaled, FOLDS)}.items():
        _bills(notes, grain, work_s)


def _bills(notes: Notes, grain: str, work_s: Sequence[float]) -> None:
    """A line per memory and cap; what is billed without cold starts is summed by hand, too, in ms."""
    for cap in CAPS:
        for memory_mb in MEMORIES_MB:
            facts = {"kind": "bill", "grain": grain, "cap": cap, "memory_mb": memory_mb}
            if notes.has(**facts):
                continue
            platform = Platform(memory_mb=memory_mb, concurrency=cap)
            bill = simulate_bill(work_s, platform)
            warm = simulate_bill(work_s, Platform(memory_mb=memory_mb, concurrency=cap, cold_start_s=0.0))
            share = min(1.0, memory_mb / platform.core_mb)
            by_hand_ms = sum(math.ceil(round(1000 * seconds / share, 6)) for seconds in work_s)
            sums = {"warm_ms": round(1000 * 1024 * warm.gb_seconds / memory_mb), "by_hand_ms": by_hand_ms}
            notes.add({**facts, **bill._asdict(), **sums})
