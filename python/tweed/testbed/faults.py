"""Faults as a value: what befalls which members, and when. Pure.

    plan = Plan.parse("after 0.5s kill 0; after 1s stop 2 for 2s; after 20 steps cut 0-3 for 1s")
    plan = Plan.drawn(8, {"kill": 500, "stop": 20}, seed=7, mean_s=0.5)    # equal for equal arguments
    str(plan)                                                              # can be read again

The same plan is for processes that run (`tweed.testbed.fault_injector`) and for virtual members
(`tweed.simulate.elastic`). A fault begins so many seconds, or steps, after the one before it has begun (the
first: after the begin), and not before the members that it names are in: who is away cannot be struck.

    kill 0,2          SIGKILL, all of them at once
    stop 1 for 0.3s   SIGSTOP, then SIGCONT
    cut 0-2 for 1s    all packets between the two are lost; `cut 0>2`: those from 0 to 2. Live: in a testbed
    clock 1 by -60s   sets the wall clock that a process sees. Live: of processes of `tweed.testbed.restarts`
    disk 1 for 2s     whatever it writes to a file fails. Live: see `FaultInjector`

Virtual members have neither wall clocks nor files. What cannot be done is a `UsageError`, before anything is.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

from tweed.errors import UsageError
from tweed.testbed.units import plain

Kind = Literal["kill", "stop", "cut", "clock", "disk"]
#: Seconds of drawn stops: half of them shorter than the silence for which a member is lost, half longer.
SHORT_S, LONG_S = 0.3, 2.0

_FAULT = re.compile(
    r"after (?:(?P<s>[\d.]+)s|(?P<steps>\d+) steps?) "
    r"(?:(?P<kind>kill|stop|clock|disk) (?P<members>\d+(?:,\d+)*)|cut (?P<a>\d+)(?P<way>[->])(?P<b>\d+))"
    r"(?: (?P<word>for|by) (?P<seconds>-?[\d.]+)s)?"
)
_EXAMPLE = "after 0.5s kill 0,2; after 20 steps stop 1 for 2s; after 1s cut 0>3 for 1s"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. See the module.

    Attributes:
      kind: what it is.
      members: whom it befalls, by number; of a cut, the two ends.
      seconds: how long it lasts, from 0; of a clock, by how much it is set. A kill has none.
      after_s: seconds after the fault before it. One of these two is 0.
      after_steps: counted steps after the fault before it.
      one_way: a cut loses only what the first end sends.

    Raises: UsageError for what makes no sense.
    """

    kind: Kind
    members: tuple[int, ...]
    seconds: float = 0.0
    after_s: float = 0.0
    after_steps: int = 0
    one_way: bool = False

    def __post_init__(self) -> None:
        wanted = {"kill": len(self.members) >= 1, "cut": len(self.members) == 2}
        lasts = self.seconds == 0 if self.kind == "kill" else self.seconds >= 0 or self.kind == "clock"
        if (
            self.kind not in get_args(Kind)
            or not wanted.get(self.kind, len(self.members) == 1)
            or len(set(self.members)) < len(self.members)
            or min((*self.members, self.after_s, self.after_steps)) < 0
            or (self.after_s > 0 and self.after_steps > 0)
            or (self.one_way and self.kind != "cut")
            or not lasts
        ):
            raise UsageError(f"{self.kind!r} of {self.members} is no fault; write it like {_EXAMPLE!r}")

    def __str__(self) -> str:
        steps = f"{self.after_steps} step{'s' * (self.after_steps != 1)}"
        when = steps if self.after_steps else f"{plain(self.after_s)}s"
        whom = (">" if self.one_way else "-" if self.kind == "cut" else ",").join(map(str, self.members))
        word = {"kill": "", "clock": f" by {plain(self.seconds)}s"}
        return f"after {when} {self.kind} {whom}{word.get(self.kind, f' for {plain(self.seconds)}s')}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads what `str` writes. Raises: UsageError."""
        found = _FAULT.fullmatch(" ".join(text.split()))
        kind = "" if found is None else found["kind"] or "cut"
        word = {"": None, "kill": None, "clock": "by"}.get(kind, "for")
        if found is None or found["word"] != word:
            raise UsageError(f"cannot read the fault {text.strip()!r}; write it like {_EXAMPLE!r}")
        ends = found["members"].split(",") if found["members"] else (found["a"], found["b"])
        return cls(
            kind,  # type: ignore[arg-type]  # as the expression above allows
            tuple(map(int, ends)),
            _number(found["seconds"], text),
            _number(found["s"], text),
            int(found["steps"] or 0),
            found["way"] == ">",
        )


def _number(text: str | None, whole: str) -> float:
    try:
        return float(text or 0)
    except ValueError:
        raise UsageError(f"cannot read the number {text!r} in the fault {whole.strip()!r}") from None


@dataclass(frozen=True, slots=True)
class Plan:
    """Faults in their order."""

    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return "; ".join(map(str, self.faults))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads faults with semicolons, or ends of lines, between them. Raises: UsageError."""
        return cls(tuple(Fault.parse(part) for part in re.split(r"[;\n]", text) if part.strip()))

    @classmethod
    def drawn(
        cls,
        members: int,
        counts: Mapping[Kind, int],
        *,
        seed: int,
        mean_s: float = 0.0,
        mean_steps: float = 0.0,
        spared: Collection[int] = (),
    ) -> Self:
        """Faults in any order, each of a member that is drawn, or of two.

        Args:
          counts: how many of each kind. Stops and cuts are `LONG_S` and `SHORT_S` long in turns; half of the
            cuts are one way.
          mean_s, mean_steps: between faults, on average; give one of them.
          spared: members that nothing befalls.
        """
        rng = random.Random(seed)
        who = [member for member in range(members) if member not in spared]
        drawn = [(kind, number) for kind, count in counts.items() for number in range(count)]
        rng.shuffle(drawn)
        found = []
        for kind, number in drawn:
            fault = Fault(kind, tuple(rng.sample(who, 2 if kind == "cut" else 1)))
            if kind != "kill":
                fault = replace(fault, seconds=SHORT_S if number % 2 else LONG_S)
            if kind == "cut":
                fault = replace(fault, one_way=number % 4 > 1)
            if mean_s:
                fault = replace(fault, after_s=round(rng.expovariate(1 / mean_s), 3))
            elif mean_steps:
                fault = replace(fault, after_steps=int(rng.expovariate(1 / mean_steps) + 0.5))
            found.append(fault)
        return cls(tuple(found))

    def require(self, kinds: Collection[Kind], where: str, members: int) -> None:
        """Raises: UsageError if a fault is of another kind, or befalls one that is none of the members."""
        for fault in self.faults:
            if fault.kind not in kinds:
                raise UsageError(f"`{fault}` cannot be done {where}: there, faults are {', '.join(kinds)}")
            if max(fault.members) >= members:
                raise UsageError(f"`{fault}`: there are only {members} members, from 0")

    def by_step(self) -> Sequence[tuple[int, Fault]]:
        """Each fault with the step within which it comes, from 0.

        Raises: UsageError for a time in seconds.
        """
        found, step = [], 0
        for fault in self.faults:
            if fault.after_s:
                raise UsageError(f"`{fault}`: virtual members have no seconds between steps; give steps")
            step += fault.after_steps
            found.append((step, fault))
        return found


class Progress:
    """Where a plan stands: which fault is next, and which of those that have begun are over.

    Example:
      >>> progress = Progress(Plan.parse("after 1s stop 0 for 2s; after 3 steps kill 1"), now_s=5.0, step=0)
      >>> progress.due(5.9, 0), str(progress.due(6.0, 0))
      (None, 'after 1s stop 0 for 2s')
      >>> progress.begun(6.0, 0)
      >>> progress.due(9.0, 2), [fault.kind for fault in progress.over(8.0)]
      (None, ['stop'])
    """

    def __init__(self, plan: Plan, now_s: float, step: int) -> None:
        self._waiting = list(reversed(plan.faults))
        self._since = (now_s, step)
        self._lasting: list[tuple[float, Fault]] = []

    @property
    def done(self) -> bool:
        """All have begun and are over."""
        return not self._waiting and not self._lasting

    def due(self, now_s: float, step: int) -> Fault | None:
        """The next fault, if it may begin; say `begun` when it has."""
        if not self._waiting:
            return None
        fault, (since_s, since) = self._waiting[-1], self._since
        early = now_s < since_s + fault.after_s or step < since + fault.after_steps
        return None if early else fault

    def begun(self, now_s: float, step: int) -> None:
        """Says that the fault that is due has begun."""
        fault, self._since = self._waiting.pop(), (now_s, step)
        if fault.kind in ("stop", "cut", "disk"):
            self._lasting.append((now_s + fault.seconds, fault))

    def over(self, now_s: float) -> Iterator[Fault]:
        """The faults that have lasted as long as they are to."""
        ended = [one for one in self._lasting if one[0] <= now_s]
        self._lasting = [one for one in self._lasting if one[0] > now_s]
        yield from (fault for _, fault in ended)
