"""Published systems: the paper, the parts it is made of here, and the experiment that checks its claim.

A system is a folder with a `SYSTEM`, its contenders, its measurements and its report, and a row here. What it
needs and is missing becomes a part of a stage, or a package of `tweed.workloads`; what several systems share
is in `harness` and in `tweed.data`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tweed.errors import UsageError
from tweed.report.notes import Line, Notes
from tweed.report.study import Study

__all__ = ["SYSTEMS", "Headline", "System", "system"]

#: Name and one line about it.
SYSTEMS = {
    "coded_matmul": "products of a matrix that any k of n workers give, by real-valued codes",
    "compression": "compressors, memories and cadences beside DDP on slow links",
    "cser": "what is not sent is applied at once, alone, and averaged later",
    "dct": "a threshold, held by a controller, decides which values and activations are sent",
    "double_ml": "an effect and its confidence interval from many fits, which run as tasks that may fail",
    "elastic": "workers are lost, return and arrive, and training goes on",
    "epsl": "split learning: gradients of clients are averaged, propagated once and broadcast once",
    "fixed_points": "rules by which networks at rest learn where the gradient is unstable",
    "hoplite": "collectives that form as objects appear, between the tasks and actors of Ray",
    "ltp": "a loss-tolerant transport: gradients do not wait for the last packet",
    "mlfabric": "a hub says which gradient moves first, and none is applied too late",
    "multitree": "trees grown together so that no two want a link at once, and what came after them",
    "ofedqit": "online federated learning with quantised messages that few clients send",
    "ordered_gradient": "only the most informative workers send, in the order of the norms of their updates",
    "prophet": "gradients cross in blocks that end when the next burst of them comes, or by urgency",
    "rules": "rules for hostile contributions against attacks, each against each",
    "saef": "gradients are taken where the residual would lead, had it been sent",
    "straggler_messages": "workers send what they have after each shard, uncoded or coded",
    "target_propagation": "layers learn from targets, by feedback weights that are never trained",
    "teasq": "devices ask a hub for tasks and send little: asynchronous federated learning",
    "zeno": "most workers may be hostile: the hub looks what contributions do to the loss on trusted samples",
    "zeno_ps": "layers are judged by validators' own steps, skipped at random, and have noise",
}


@dataclass(frozen=True, slots=True)
class Headline:
    """What a reader of one line must know of a system.

    Attributes:
      claim: of the paper, in figures.
      here: what was measured here, with `{}` in the place of each figure.
      goals: the rows of the system's page, docs/NAME.md, that have these figures.
      wanted: when a user wants the system, and what it lost to.
    """

    claim: str
    here: str
    goals: tuple[str, ...]
    wanted: str


@dataclass(frozen=True, slots=True)
class System:
    """A published system.

    Attributes:
      title: what it is called, and what it is.
      paper: where it is described.
      parts: the strategy that it is here, as an expression.
      experiment: measures all that is not yet in the notes; the flag asks for a quick look only.
      study: the report of such notes.
      headline: the system in one line of the README.
    """

    title: str
    paper: str
    parts: str
    experiment: Callable[[Notes, bool], None]
    study: Callable[[Sequence[Line]], Study]
    headline: Headline


def system(name: str) -> System:
    """The system called `name`. Raises: UsageError if there is none; lists those that there are."""
    if name not in SYSTEMS:
        raise UsageError(f"there is no system {name!r}; there are {', '.join(SYSTEMS)}")
    found: System = importlib.import_module(f"tweed.systems.{name}").SYSTEM
    return found
