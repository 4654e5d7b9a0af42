"""Short runs of virtual members, each drawn from its seed: by the hundred with the tests, by the hundred
thousand with `python -m tests.simulate.elastic_soak --seeds`.

A seed draws how many members there are, for how many steps, whether the batch is of all together or of each,
and what befalls them: kills, stops and cuts, also one way, at any moment of a step. Who died or was evicted
joins again. The simulator looks whether an epoch is agreed twice, whether members differ after any step, and
whether all come back in; here it is seen whether each sample is counted as without faults.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

import torch

from tests.simulate.test_elastic import counting, each_comes_once_per_pass, trained
from tweed.simulate.elastic import Run
from tweed.testbed.faults import Plan

#: Seeds that a process takes at a time.
_BLOCK = 100


class Case(NamedTuple):
    """What a seed draws."""

    members: int
    steps: int
    per_member: bool
    plan: Plan


def drawn(seed: int) -> Case:
    """See the module."""
    rng = random.Random(seed)
    members, steps = rng.randint(3, 6), rng.randint(5, 10)
    most = {"kill": 4, "stop": 2, "cut": 2}
    faults = Plan.drawn(
        members,
        {kind: rng.randint(0, count) for kind, count in most.items()},  # type: ignore[misc]
        seed=seed,
        mean_steps=rng.choice([0.5, 1.0, 2.0]),
    ).faults
    lasting = (replace(one, seconds=one.seconds and round(rng.uniform(0.1, 2.5), 2)) for one in faults)
    return Case(members, steps, rng.random() < 0.3, Plan(tuple(lasting)))


@cache
def undisturbed(steps: int) -> Run:
    """By one member: the updates are those of any number."""
    return trained(Plan(), steps=steps, members=1)


def verify(seed: int) -> Run:
    """Raises: AssertionError or TweedError, if anything is wrong."""
    members, steps, per_member, plan = drawn(seed)
    if per_member:
        run = counting(plan, seed, steps, members)
        each_comes_once_per_pass(run)
        return run
    run, expected = trained(plan, seed, steps, members), undisturbed(steps)
    assert run.counts == expected.counts, "samples are lost or doubled"
    apart = float((run.params - expected.params).abs().max())
    assert apart < 1e-12, f"the model is {apart:.1e} from that without faults"
    return run


@dataclass
class Report:
    """Of many seeds: what came about, and by seed what was wrong."""

    totals: Counter[str] = field(default_factory=Counter)
    wrong: dict[int, str] = field(default_factory=dict)

    def __iadd__(self, other: Report) -> Report:
        self.totals += other.totals
        self.wrong |= other.wrong
        return self


def verified(seeds: range) -> Report:
    """Each in turn."""
    report = Report()
    for seed in seeds:
        try:
            run = verify(seed)
        except Exception as error:  # noqa: BLE001 - whatever is wrong is wrong with this seed
            report.wrong[seed] = f"{type(error).__name__}: {error}"
            continue
        report.totals.update(run.faults)
        report.totals.update(evicted=run.evicted, epochs=run.epochs, taken=run.taken, anew=run.anew)
    return report


def by_all_cores(first: int, count: int) -> Report:
    """So many seeds, over as many processes as there are cores."""
    blocks = [range(at, min(at + _BLOCK, first + count)) for at in range(first, first + count, _BLOCK)]
    total = Report()
    with ProcessPoolExecutor(os.cpu_count(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for report in pool.map(verified, blocks):
            total += report
    return total
