"""A hub and its standby as processes that can be killed, members as threads, and what must hold of logs.

What a member contributes is a function of its number and the task's, so that a log of commits can be replayed
without anybody else: see `check`.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import torch
from torch import Tensor, nn

import tweed
from tests.hub.plans import Plans
from tweed import _core
from tweed.aggregate import Cache
from tweed.collective import Hub
from tweed.rng import uniform
from tweed.strategy import Strategy
from tweed.testbed import Failed, Ranks, Said, say

STRATEGY = Strategy(collective=Hub(0))
CACHED = Strategy(collective=Hub(0, when=Cache(2)))
PATIENCE_S = 60.0


def made(width: int = 8) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model and the hub's optimizer, the same each time."""
    torch.manual_seed(3)
    model = nn.Linear(width, 4)
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def gradients(model: nn.Module, member: int, number: int) -> list[Tensor]:
    """What a member contributes for its task of this number."""
    draw = torch.Generator().manual_seed(1000 * number + member)
    return [torch.randn(param.shape, generator=draw) for param in model.parameters()]


def digest(model: nn.Module) -> str:
    """Of all bits of the parameters."""
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16]


def serves(_rank: int, _size: int, log: str, given: dict[str, Any], commits: int | None, width: int) -> None:
    """A hub or a standby: writes a line of `log` per commit, and says where it is and when it has ended. With
    aggregators it plans as `Plans`; as a hub that has them, it keeps a log of events."""
    Plans().put()
    keeps = given["strategy"].hub.aggregators and "replica_of" not in given
    model, optimizer = made(width)
    run = tweed.serve(model, optimizer, **given)
    say(("address", run.address))
    with Path(log).open("a") as file:

        def note(version: int) -> None:
            counted = [[one.member, one.number] for one in run.contributions]
            line = {"version": version, "counted": counted, "bits": digest(model), "at": time.monotonic()}
            line |= {"follows": run._exchange.standby is not None}  # type: ignore[attr-defined]
            stats, sent = run.stats, run.replication
            line |= {"sent": [stats.bytes_answered, sent.log_bytes, sent.state_bytes]}
            file.write(json.dumps(line) + "\n")
            file.flush()

        try:
            run.serve(commits=commits, after=note, log=f"{log}.events" if keeps else None)
            say(("ended", run._exchange.hub.version))  # type: ignore[attr-defined]
        except tweed.errors.Superseded as error:
            say(("superseded", str(error)))
        finally:
            run.detach()


@dataclass
class Member:
    """A thread that trains until it is over, or told to stop.

    Attributes:
      told: numbers of tasks that counted, as it was told.
    """

    address: str
    strategy: Strategy
    pause_s: float = 0.0
    width: int = 8
    aggregator: bool = False
    worker: int = -1
    told: set[int] = field(default_factory=set)
    over: bool = False
    stop: Event = field(default_factory=Event)
    error: BaseException | None = None
    waiting: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.thread = Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._train()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def _train(self) -> None:
        model, optimizer = made(self.width)
        run = tweed.attach(model, optimizer, self.strategy, hub=self.address, aggregator=self.aggregator)
        self.worker, machine = run.worker, run._exchange._machine  # type: ignore[attr-defined]
        while not run.over and not self.stop.is_set():
            number = machine.task.number
            for param, grad in zip(model.parameters(), gradients(model, self.worker, number), strict=True):
                param.grad = grad
            optimizer.step()
            if machine.last == number and machine.counted and not run.over:
                self.told.add(number)
            if self.pause_s:
                self.stop.wait(self.pause_s * (0.5 + uniform(9, self.worker, number)))
        self.over = run.over
        self.waiting = set(machine._kept)
        run.detach()


@dataclass
class Site:
    """A process that is a hub or a standby, under a key that it keeps."""

    folder: Path
    name: str
    log: Path = field(init=False)
    ranks: Ranks | None = None
    address: str = ""
    events: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = self.folder / f"{self.name}.jsonl"
        self.key_file = str(self.folder / f"{self.name}.key")
        self.key = _core.HubLinks(key_file=self.key_file).key

    def start(self, log: str, commits: int | None = None, width: int = 8, **given: Any) -> None:
        """A new process, whose log is a file of its own."""
        self.log, self.events = self.folder / f"{log}.jsonl", []
        given = {"strategy": STRATEGY, "key_file": self.key_file} | given
        self.ranks = Ranks(serves, 1, str(self.log), given, commits, width)
        kind, self.address = self.hear()
        assert kind == "address", f"{self.name}: {kind} {self.address}"

    def hear(self) -> tuple[str, Any]:
        """The next thing that it says."""
        assert self.ranks is not None  # it was started
        self.events += [] if self.events else self.ranks.poll(PATIENCE_S)
        assert self.events, f"{self.name} says nothing"
        event = self.events.pop(0)
        assert isinstance(event, Said), f"{self.name}: {event.text if isinstance(event, Failed) else event}"
        return event.value

    def lines(self) -> list[dict[str, Any]]:
        """Of its log."""
        found = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(line) for line in found]

    def wait(self, commits: int, patience_s: float = PATIENCE_S) -> None:
        """Until its log has so many lines."""
        self.wait_for(lambda lines: len(lines) >= commits, patience_s)

    def wait_for(self, holds: Callable[[list[dict[str, Any]]], bool], patience_s: float = PATIENCE_S) -> None:
        """Until that holds of its log."""
        until = time.monotonic() + patience_s
        while not holds(lines := self.lines()):
            assert time.monotonic() < until, f"{self.name} has made {len(lines)} commits"
            time.sleep(0.02)

    def kill(self) -> None:
        """As a machine that fails: SIGKILL."""
        assert self.ranks is not None  # it was started
        self.ranks.kill(0)
        self.ranks.poll(PATIENCE_S)
        self.ranks.stop()


def joined(log: list[dict[str, Any]], lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A log of commits with that of the next process: what it made comes in the place of what others had made
    beside it. It has no lines of versions that it was given as a whole state: for these the others' stand."""
    if not lines:
        return log
    serves = next((line["version"] for line in lines if not line["follows"]), math.inf)
    before = {line["version"]: line for line in log if line["version"] < serves}
    for line in lines:
        same = before.get(line["version"])
        assert same is None or same["bits"] == line["bits"], f"{same} and {line}"
    both = before | {line["version"]: line for line in lines}
    return [both[version] for version in sorted(both) if version <= lines[-1]["version"]]


def check(
    log: list[dict[str, Any]], members: list[Member], each: bool = True, width: int = 8, sums: bool = False
) -> None:
    """Of a log from version 1 on: nothing is lost or counts twice, and all models are those of its replay, if
    there are no `sums` in it: it does not say in which order they were formed."""
    assert [line["version"] for line in log] == list(range(1, len(log) + 1))
    counted = Counter((member, number) for line in log for member, number in line["counted"])
    assert max(counted.values()) == 1, f"twice: {[task for task, times in counted.items() if times > 1]}"
    for member in members:
        lost = {number for number in member.told if (member.worker, number) not in counted} - member.waiting
        assert not lost, f"member {member.worker} was told that {sorted(lost)} count"
    model, optimizer = made(width)
    for line in log if not sums else ():
        values = [gradients(model, *task) for task in line["counted"]]
        for place, param in enumerate(model.parameters()):
            total = values[0][place].clone()
            for value in values[1:]:
                total += value[place]
            param.grad = total if each else total / len(values)
        optimizer.step()
        assert digest(model) == line["bits"], f"version {line['version']} is not that of the log's replay"
