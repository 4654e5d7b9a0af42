"""Hoplite (Zhuang et al., SIGCOMM 2021, arXiv 2002.05814): collectives that form as objects appear.

Parts: the planner `objects` (crates/proto), its simulator (`tweed.simulate.objects`), its live driver
(crates/net) and `tweed.ray.put`, `get` and `reduce`. Ours on top: the directory is spread over processes and
outlives any of them, shapes and blocks follow what is measured, a repair may keep what is summed ("ranges").

The paper's claim: broadcast and reduce near the time of the bytes over one link, whoever comes when, and a
death that costs no restart; so asynchronous SGD is up to 7.8 times as fast as on Ray, and serving 3.3 times.
Here collectives and applications run live between raylets beside what Ray has, and a worker dies in them.

contenders     what is simulated and run
plans          the planner, simulated
collectives    between raylets, beside what Ray has
sides          what each side does
applications   a server and workers, beside Ray's objects
ensemble       the models that serving asks
training       SGD on data, by the first gradients or by all
report         goals and tables
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tweed.errors import NoTestbed
from tweed.report.notes import Line, Notes
from tweed.systems import Headline, System
from tweed.systems.harness import tuning
from tweed.systems.harness.learning_rates import Grid
from tweed.systems.hoplite import applications, collectives, plans, training
from tweed.systems.hoplite.contenders import APPLIED, MODES, ONE_HOST, ONE_HOST_NODES, S_B_S, SHARES, TRAINED
from tweed.systems.hoplite.report import study


@dataclass(frozen=True, slots=True)
class Config:
    """How much is measured.

    Attributes:
      ranks: of the simulated networks.
      nodes: of the clusters.
      application_nodes, death_nodes: of the clusters of the applications, and of those where a worker dies.
      updates: models of which asynchronous SGD is simulated.
      s_b: seconds that the arrays of the applications take over a link.
      rounds: of each collective and side, and of each application.
    """

    ranks: tuple[int, ...]
    nodes: tuple[int, ...]
    application_nodes: tuple[int, ...] = ()
    death_nodes: tuple[int, ...] = ()
    updates: tuple[str, ...] = ()
    s_b: float = S_B_S
    rounds: int = 6


FULL = Config((16, 64, 256), (4, 8, 16), tuple(APPLIED), (9,), tuple(applications.MODELS))
QUICK = Config((16,), ())
UPDATED = (8, 16)
#: Workers that train, gradients of an asynchronous step, synchronous steps. All sides take as many gradients.
WORKERS, FIRST, STEPS = 15, 7, 150


def experiment(notes: Notes, quick: bool) -> None:
    """Measures what is not in the notes. Cost: three quarters of an hour of two cores; quick: seconds."""
    config = QUICK if quick else FULL
    for nodes in config.nodes:
        _live(notes, nodes, config)
    if not quick:
        _on_one_host(notes, 4 * config.rounds)
    for nodes in config.application_nodes:
        _applied(notes, nodes, config)
    for nodes in config.death_nodes:
        _applied(notes, nodes, config, deaths=True)
    for ranks in config.ranks:
        _simulated(notes, ranks)
    for name in config.updates:
        for ranks in UPDATED:
            _updates(notes, name, ranks)
    if not quick:
        tuning.tuned(notes, [_trained(side) for side in TRAINED], processes=1)


def _trained(name: str) -> tuning.Side:
    """A side that trains: its rate is searched, then five seeds."""
    is_first, momentum = TRAINED[name]
    count, steps = (FIRST, STEPS * WORKERS // FIRST) if is_first else (WORKERS, STEPS)

    def run(lr: float, seed: int) -> Line:
        job = training.Job(WORKERS, count, steps, lr, momentum, seed=seed)
        return training.run(job, with_replay=seed == 0)

    return tuning.Side(name, {"kind": "sgd"}, run, Grid(0.1, 2.0), range(5), tuning.beyond_guessing)


def _simulated(notes: Notes, ranks: int) -> None:
    if not notes.has(kind="pipelined", ranks=ranks):
        notes.log(f"simulating {ranks} processes")
        notes.add({"kind": "pipelined", "ranks": ranks, **plans.pipelined(ranks)})
        notes.add({"kind": "arrivals", "ranks": ranks, "seconds": plans.arrivals(ranks)})
        notes.add({"kind": "slow", "ranks": ranks, "ratio": plans.slow_receiver(ranks)})
    for mode in MODES:
        for share in SHARES:
            facts = {"kind": "death", "ranks": ranks, "mode": mode, "share": share}
            if not notes.has(**facts):
                notes.add({**facts, **plans.death(ranks, share, mode)})


def _updates(notes: Notes, name: str, ranks: int) -> None:
    if not notes.has(kind="updates", application=name, ranks=ranks):
        compute = applications.compute_of(name)
        ways = {"blocks": True, "whole": False}
        found = {way: plans.updates(ranks, compute, by_blocks=flag) for way, flag in ways.items()}
        notes.add({"kind": "updates", "ranks": ranks, "application": name, "compute": compute, **found})


def _live(notes: Notes, nodes: int, config: Config) -> None:
    facts = {"kind": "live", "nodes": nodes, "rate_mbit": collectives.rate_mbit(nodes)}
    words = f"{nodes} raylets at {facts['rate_mbit']} Mbit/s"
    _once(notes, facts, words, lambda: collectives.measure(nodes, config.rounds))


def _on_one_host(notes: Notes, rounds: int) -> None:
    nodes = ONE_HOST_NODES
    facts = {"kind": "one host", "nodes": nodes}
    words = f"{nodes} raylets of one host"
    _once(notes, facts, words, lambda: collectives.on_one_host(nodes, ONE_HOST, rounds))


def _applied(notes: Notes, nodes: int, config: Config, *, deaths: bool = False) -> None:
    """One application alone: `python -m tweed.systems.hoplite applications NAME`, or `--deaths`."""
    kind, rate = "death live" if deaths else "application", collectives.rate_mbit(nodes)
    facts = {"kind": kind, "nodes": nodes, "rate_mbit": rate, "s_b": config.s_b}
    names = applications.DEATHS if deaths else APPLIED[nodes]
    words = f"{', '.join(names)}: a server and {nodes - 1} workers{', one of which dies' if deaths else ''}"
    measure = applications.measure
    _once(notes, facts, words, lambda: measure(names, nodes, config.s_b, config.rounds, deaths=deaths))


def _once(notes: Notes, facts: Line, words: str, run: Callable[[], Iterable[Line]]) -> None:
    """Notes what a cluster measures, if that is not there."""
    if notes.has(**facts):
        return
    notes.log(words)
    try:
        for line in run():
            notes.add({**facts, **line})
    except NoTestbed as error:
        notes.log(f"not measured live: {error}")


NAME, SOURCE = "Hoplite, collectives that form as objects appear", "SIGCOMM 2021, arXiv 2002.05814"
SYSTEM = System(
    NAME,
    SOURCE,
    "tweed.ray.reduce(refs, count)",
    experiment,
    study,
    headline=Headline(
        "asynchronous SGD 7.8× as fast as on Ray",
        "{} with 23 workers, {} with 15",
        (
            "AlexNet, 23 workers: 7.8 times as fast as Ray's objects",
            "AlexNet, 15 workers: 5.5 times as fast as Ray's objects",
        ),
        "Tasks and actors of Ray, on several hosts or on one.",
    ),
)
