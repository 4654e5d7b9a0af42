"""Kills hubs by SIGKILL, again and again, while members train, and looks at what is left.

    python -m tests.hub.standby_soak --kills 50
    python -m tests.hub.standby_soak --kills 50 --seed 7 --width 2000 --members 4
    python -m tests.hub.standby_soak --kills 50 --aggregators 2        two of the members add up for others

Two sites take turns: the hub is killed at a moment that the seed decides, its standby takes over, and what
was the hub comes back as standby. At the end the logs of all processes are joined to one, which is replayed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.hub.replicated import PATIENCE_S, STRATEGY, Member, Site, check, joined
from tweed.collective import Hub
from tweed.strategy import Strategy

#: A kill comes after so many commits with a standby, at least and at most.
FEWEST, MOST = 5, 60


class Soak:
    """A run, and what came of it so far.

    Args:
      seed: decides when the hub is killed.
      members: how many train.
      width: of the model: 4 * width + 4 parameters.
      aggregators: so many of the members add up what others send. Then logs are not replayed, for they do not
        say in which order sums were formed; hub and standby must have the same bits all the same.
    """

    def __init__(self, folder: Path, seed: int, members: int, width: int, aggregators: int = 0) -> None:
        self.seed, self.width, self.aggregators = seed, width, aggregators
        self.strategy = Strategy(collective=Hub(0, aggregators=aggregators)) if aggregators else STRATEGY
        self.draw = random.Random(seed)
        self.hub, self.standby = Site(folder, "a"), Site(folder, "b")
        self.size, self.kills, self.started = members, 0, 0
        self.after_s: list[float] = []
        self.log: list[dict[str, Any]] = []
        self.sent = [0, 0, 0]  # models, logs and states that hubs have sent
        self._start(self.hub, None)
        self._start(self.standby, self.hub)
        able = [number < aggregators for number in range(members)]
        self.members = [Member(self.hub.address, self.strategy, 0.01, width, one) for one in able]

    def _start(self, site: Site, hub: Site | None) -> None:
        other = self.standby if site is self.hub else self.hub
        self.started += 1
        given: dict[str, Any] = {"replicas": [other.key], "fewest": self.size, "strategy": self.strategy}
        if hub is not None:
            given["replica_of"] = hub.address
        site.start(f"{self.started:03}", width=self.width, **given)

    def kill(self) -> None:
        """The hub, once its standby follows; and waits for the first commit of that."""
        behind, goal = len(self.standby.lines()), self.draw.randint(FEWEST, MOST)
        self.standby.wait(behind + goal)
        time.sleep(self.draw.uniform(0, 0.05))
        self.hub.kill()
        killed = time.monotonic()
        self.kills += 1
        self._join(self.hub.lines())
        self.hub, self.standby = self.standby, self.hub
        self.after_s.append(self._first_commit_s() - killed)
        self._start(self.standby, self.hub)

    def _first_commit_s(self) -> float:
        until = time.monotonic() + PATIENCE_S
        while True:
            for line in self.hub.lines()[-200:]:
                if not line["follows"]:
                    return float(line["at"])
            assert time.monotonic() < until, f"{self}: nobody takes over"
            time.sleep(0.01)

    def _join(self, lines: list[dict[str, Any]]) -> None:
        """Of a process that has ended."""
        self.log = joined(self.log, lines)
        own = [line["sent"] for line in lines if not line["follows"]]
        self.sent = [total + new for total, new in zip(self.sent, own[-1] if own else [0, 0, 0], strict=True)]

    def end(self) -> None:
        """Members leave, and all is looked at."""
        for member in self.members:
            member.stop.set()
        for member in self.members:
            member.thread.join(PATIENCE_S)
            assert not member.thread.is_alive(), f"{self}: member {member.worker} does not end"
            assert member.error is None, f"{self}: {member.error!r}"
        told = {(one.worker, number) for one in self.members for number in one.told - one.waiting}
        told -= {tuple(task) for line in self.log for task in line["counted"]}
        self.hub.wait_for(lambda lines: told <= {tuple(task) for line in lines for task in line["counted"]})
        self._join(self.hub.lines())
        for site in (self.hub, self.standby):
            site.kill()
        check(self.log, self.members, width=self.width, sums=self.aggregators > 0)

    def report(self, took_s: float) -> None:
        """Prints the figures."""
        models, log, states = self.sent
        counted = sum(len(line["counted"]) for line in self.log)
        print(f"{self}: {took_s:.0f} s, {len(self.log)} commits, {counted} contributions, none lost or twice")
        print(
            f"  first commit after a kill: median {statistics.median(self.after_s):.2f} s, "
            f"most {max(self.after_s):.2f} s"
        )
        print(
            f"  MB from hubs: models {models / 1e6:.2f}, log {log / 1e6:.3f}, states {states / 1e6:.2f}; "
            f"log {log / models:.2%}, with states {(log + states) / models:.2%} of models",
            flush=True,
        )

    def __str__(self) -> str:
        able = f", {self.aggregators} of them aggregators" if self.aggregators else ""
        size = f"{4 * self.width + 4} parameters"
        return f"seed {self.seed}, {self.size} members{able}, {size}, {self.kills} kills"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.hub.standby_soak")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--width", type=int, default=2000)
    parser.add_argument("--aggregators", type=int, default=0)
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        run = Soak(Path(folder), given.seed, given.members, given.width, given.aggregators)
        while run.kills < given.kills:
            run.kill()
            print(f"  {run.kills}: {run.after_s[-1]:.2f} s", flush=True)
        run.end()
        run.report(time.monotonic() - began)


if __name__ == "__main__":
    main()
