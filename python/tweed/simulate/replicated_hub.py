"""A virtual hub with a standby that takes over when the hub is gone; what was the hub comes back as standby.

    run = ReplicatedHub(make_hub, make_standby, conditions, learn, (site, other_site), Failures(kills=0.01))
    run.until(updates=1000)
    run.kills, run.hub.version

The hub is killed only when its standby has a model: of two that are gone at once nothing is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tweed.hub.machine import Hub, Payload, Step, Task, Worker
from tweed.hub.machine.grants import counted_before
from tweed.hub.machine.model_source import ModelSource
from tweed.hub.standby.machine import Standby
from tweed.hub.wire.messages import Copy, Entry, Kept, Offer, Sum, control_bytes
from tweed.rng import uniform
from tweed.simulate.hub import HUB, STANDBY, Apply, Conditions, Learn, VirtualHub


@dataclass(frozen=True, slots=True)
class Site:
    """A model and its optimizer, at the hub or at the standby.

    Attributes:
      apply: as of `VirtualHub`.
      state, load: all that has to be sent so that another one goes on from here.
    """

    apply: Apply
    state: Callable[[], Any]
    load: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Failures:
    """When the hub is gone, and how long everything takes then. Times are in seconds.

    Args:
      kills: how often, per second.
      notice_s: until the standby takes over.
      back_s: until what was the hub comes back, to be the standby.
      stall_s: an entry of the log that has waited so long for a copy makes the hub send its whole state.
    """

    kills: float = 0.0
    notice_s: float = 0.5
    back_s: float = 0.5
    stall_s: float = 5.0


class ReplicatedHub(VirtualHub):
    """See above, and `VirtualHub`.

    Args:
      make_hub, make_standby: a new machine with the same settings each time.
      sites: the hub's, and that of its standby, with the same model.

    Attributes:
      standby: its machine; None: there is none now.
      active: which site is the hub's.
      kills: so far.
      log_bytes, state_bytes: that the hub has sent to the standby.
      copy_bytes: that members have.
    """

    def __init__(
        self,
        make_hub: Callable[[], Hub],
        make_standby: Callable[[], Standby],
        conditions: Conditions,
        learn: Learn,
        sites: tuple[Site, Site],
        failures: Failures = Failures(),
    ) -> None:
        self.standby: Standby | None = None
        self.active = self.kills = self.log_bytes = self.state_bytes = self.copy_bytes = 0
        self._ready = False
        self._make_hub, self._make_standby, self._sites = make_hub, make_standby, sites
        self._failures, self._epochs = failures, [0] * conditions.members
        sites[1].apply(None)
        super().__init__(make_hub(), conditions, learn, sites[0].apply)
        self._join(state=False)
        self._plan_kill()

    def _worker(self) -> Worker:
        return Worker(keeps=True)

    # The hub is gone

    def _plan_kill(self) -> None:
        if self._failures.kills:
            drawn = 1 - uniform(self._conditions.seed, 3, self.kills)
            self.clock.after(-math.log(drawn) / self._failures.kills, self._kill)

    def _kill(self) -> None:
        if not (self._ready and self.alive):
            self.clock.after(self._failures.notice_s, self._kill)
            return
        self.kills += 1
        self.alive = False
        self.links.cut(self.node)
        for member in self._members:
            member.aggregator.unlinked()
        self.clock.after(self._failures.notice_s, self._take_over)

    def _take_over(self) -> None:
        standby = self.standby
        assert standby is not None  # it was ready
        self.standby, self._ready, self.active = None, False, 1 - self.active
        self.node = (HUB, STANDBY)[self.active]
        self._apply = self._sites[self.active].apply
        self._model, self._model_bytes = self._standby_model
        del self.steps[standby.version :]
        del self.delays[sum(map(len, self.steps)) :]
        self.hub, self.alive = self._make_hub(), True
        for number in range(len(self._members)):
            self.hub.expect(number, self.now)
        standby.take_over(self.hub, self.now)
        for number in range(len(self._members)):
            if number in self.links.linked:
                self._greet(number)
        self.clock.after(self._failures.back_s, self._join)
        self._plan_kill()

    def _join(self, state: bool = True) -> None:
        """What was the hub is back."""
        self.standby = self._make_standby()
        self.links.link((HUB, STANDBY)[1 - self.active])
        if state:
            self._send_state()
        else:
            self._ready, self._standby_model = True, (self._model, self._model_bytes)

    def _send_state(self) -> None:
        """All that the hub has goes to the standby."""
        standby, state, kept = self.standby, self.hub.standby_state(), self._sites[self.active].state()
        model = self._model, self._model_bytes
        self.state_bytes += self._model_bytes

        def arrive() -> None:
            if standby is None or standby is not self.standby or state["version"] < standby.version:
                return
            if self._ready and state["version"] == standby.version:
                return
            standby.load(state)
            self._sites[1 - self.active].load(kept)
            self._ready, self._standby_model = True, model
            for member, number in state["last"].items():
                self._tell_kept(Kept(member, number))
            self._forget_missing(state["last"])
            self._replicate()

        self.links.send(self.node, self._other, self._model_bytes, arrive)

    def _forget_missing(self, last: dict[int, int]) -> None:
        if self.hub.grants.copies is not None:
            self.hub.grants.copies.held(counted_before(last))

    @property
    def _other(self) -> int:
        return (HUB, STANDBY)[1 - self.active]

    def _greet(self, number: int) -> None:
        """A member's link is there: to the hub that it knew, or to another one."""
        member = self._members[number]
        if self._epochs[number] == self.kills or not self.alive:
            member.worker.linked()
            for task, offer, value in member.worker.unsafe():
                self._send_copy(number, _copy(number, Payload(task.number, value), task, offer))
        else:
            self._epochs[number] = self.kills
            member.worker.renewed()
            member.model_source = ModelSource()  # the same version may be another model now
        self._drive(number)

    # Copies, and the log

    def _send_payload(self, number: int, message: Payload) -> None:
        if message.copy_first and message.via is None:
            copy = self._copy_of(number, message)
            self._send_copy(number, copy, lambda: super(ReplicatedHub, self)._send_payload(number, message))
        else:
            super()._send_payload(number, message)

    def _send_sum(self, number: int, message: Sum) -> None:
        if message.copy_first:
            copy = self._copy_of(number, message)
            self._send_copy(number, copy, lambda: super(ReplicatedHub, self)._send_sum(number, message))
        else:
            super()._send_sum(number, message)

    def _arrived(self, number: int, message: Payload | Sum) -> None:
        """It is at the hub. If it counts, and its copy did not go first, that goes to the standby."""
        copy = self._copy_of(number, message)
        if not message.copy_first and all(self.hub.has_counted(task) for task in copy.tasks):
            self._send_copy(number, copy)

    def _copy_of(self, number: int, message: Payload | Sum) -> Copy:
        if isinstance(message, Payload):
            key = number, message.number
            return Copy((key,), None, message, (self._version_of[key],), (self._offers[key],))
        return Copy((*message.tasks, *message.left_out), message.group, message, via=number)

    def _send_copy(self, number: int, copy: Copy, after: Callable[[], None] = lambda: None) -> None:
        standby = self.standby
        if standby is None:
            after()
            return
        numbytes = max(self._numbytes[task] for task in copy.tasks)

        def arrive() -> None:
            if standby is self.standby:
                standby.handle(copy)
                self.links.tell(self._other, self.node, lambda: self._held(copy))
                self._replicate()
            after()

        self.copy_bytes += numbytes
        self.links.send(number, self._other, numbytes, arrive)

    def _held(self, copy: Copy) -> None:
        if self.hub.grants.copies is not None:
            self.hub.grants.copies.held(copy.tasks)

    def _committed(self, step: Step) -> None:
        standby = self.standby
        if standby is None:
            return
        entry = Entry(step.version, step.units)
        self.log_bytes += control_bytes(entry)

        def arrive() -> None:
            if standby is self.standby:
                standby.handle(entry)
                self._replicate()

        def late() -> None:
            if standby is self.standby and self.alive and standby.version < entry.version:
                self._send_state()

        self.links.tell(self.node, self._other, arrive)
        self.clock.after(self._failures.stall_s, late)

    def _replicate(self) -> None:
        """The standby applies what it can."""
        while self.standby is not None and self._ready and (found := self.standby.poll()) is not None:
            step, kept = found
            self._standby_model = self._sites[1 - self.active].apply(step)
            for one in kept:
                self._tell_kept(one)

    def _tell_kept(self, kept: Kept) -> None:
        self.links.tell(self._other, kept.member, lambda: self._members[kept.member].worker.kept(kept.number))


def _copy(number: int, payload: Payload, task: Task, offer: Offer) -> Copy:
    return Copy(((number, task.number),), None, payload, (task.version,), (offer,))
