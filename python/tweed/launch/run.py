"""A job from the first look at its hosts to the end of its last rank."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tweed.doctor.estimate import Trip, clock
from tweed.errors import UsageError
from tweed.launch.host_checks import HostInfo, problems, why_no_agent, with_addresses
from tweed.launch.job import SILENCE_S, Job
from tweed.launch.job_exit import JobExit, named
from tweed.launch.session import Event, Message, SessionEnded, Sessions, UnmarkedOutput

#: To log in and to load Python and tweed, which may come over a network too.
_ANSWER_S = 30.0
_TRIPS = 3


class Show(Protocol):
    """What shows a job as it goes."""

    def line(self, rank: int, stream: int, text: str) -> None:
        """A rank has printed it, on stream 1 or 2."""

    def note(self, text: str) -> None:
        """The launcher has something to say."""

    def doctor(self, report: dict[str, Any]) -> bool:
        """Shows what `tweed doctor --json` has found; returns whether training can work."""


@dataclass
class Launch:
    """One job.

    Args:
      job: what is asked for.
      ssh: the command that reaches hosts.
      show: shows what happens.
      now: a steady clock, in seconds.
    """

    job: Job
    ssh: str
    show: Show
    now: Callable[[], float] = time.monotonic

    def run(self, visit: bool) -> int:
        """Looks at the hosts, measures between them if `visit`, runs the job, and leaves nothing behind.

        Returns: 0, or the exit code of the rank that failed first: 128 + the signal if one has killed it.

        Raises: UsageError, if a host cannot be used, or the doctor finds what keeps training from working;
          names hosts and remedies.
        """
        sessions = Sessions(self.job.hosts, self.job.python, self.ssh)
        try:
            with sessions:
                return self._run(sessions, visit)
        finally:
            for name in sessions.cut:
                self.show.note(f"{name} does not answer; its ranks end within {SILENCE_S:.0f} s")

    def _run(self, sessions: Sessions, visit: bool) -> int:
        job = self._checked(sessions)
        if visit and len(job.hosts) > 1:
            self._visit(sessions, job)
        for number, host in enumerate(job.hosts):
            self.show.note(f"{host.name} ({host.address}): {named(job.on(number))}")
        job_exit = self._go(sessions, job, self.show.line)
        if job_exit.culprit:
            others = "; the others were ended" if job.size > 1 else ""
            self.show.note(f"{job_exit.culprit}{others}")
        return job_exit.status

    def _checked(self, sessions: Sessions) -> Job:
        """The job with its addresses, if all hosts are fit for it."""
        wanted = {"folder": self.job.folder, "script": self.job.script}
        numbers = range(len(self.job.hosts))
        seen = self._looked(sessions, [wanted | {"port": None if n else self.job.port} for n in numbers])
        trips: list[list[Trip]] = [[] for _ in numbers]
        for _ in range(_TRIPS):
            for number in numbers:
                sent, began = time.time(), self.now()
                answered = self._answer(sessions, number, "clock")
                trips[number].append(Trip(sent, answered, time.time(), self.now() - began))
        found_hosts = [HostInfo.from_plain(one, clock(trip)) for one, trip in zip(seen, trips, strict=True)]
        job = with_addresses(self.job, found_hosts)
        if found := list(problems(job, found_hosts)):
            raise UsageError("\n".join(found))
        return job

    def _looked(self, sessions: Sessions, questions: list[dict[str, Any]]) -> list[Any]:
        """One answer per host. All are asked at once: each takes its time to log in."""
        for number, what in enumerate(questions):
            sessions.send(number, "look", what)
        answers: dict[int, Any] = {}
        failed: dict[int, str] = {}
        until = self.now() + _ANSWER_S
        while len(answers) + len(failed) < len(questions):
            if not (events := sessions.poll(max(0.0, until - self.now()))) and self.now() >= until:
                silent = [n for n in range(len(questions)) if n not in answers and n not in failed]
                failed |= {n: f"{self._name(n)}: no answer within {_ANSWER_S:.0f} s" for n in silent}
            for event in events:
                if isinstance(event, SessionEnded):
                    host = self.job.hosts[event.host]
                    failed[event.host] = why_no_agent(host, event.code, event.printed, self.job.python)
                elif isinstance(event, Message) and event.kind == "look":
                    answers[event.host] = event.what
        if failed:
            raise UsageError("\n".join(text for _, text in sorted(failed.items())))
        return [answers[number] for number in range(len(questions))]

    def _answer(self, sessions: Sessions, number: int, kind: str) -> Any:
        sessions.send(number, kind, None)
        until = self.now() + _ANSWER_S
        while (left := until - self.now()) > 0:
            for event in sessions.poll(left):
                if isinstance(event, Message) and (event.host, event.kind) == (number, kind):
                    return event.what
                if isinstance(event, SessionEnded):
                    raise UsageError(f"{self._name(event.host)}: the connection has ended: {event.printed}")
        raise UsageError(f"{self._name(number)}: no answer within {_ANSWER_S:.0f} s")

    def _visit(self, sessions: Sessions, job: Job) -> None:
        """Runs `tweed doctor` between the hosts. Raises: UsageError if it finds an error."""
        self.show.note(f"tweed doctor between {', '.join(host.name for host in job.hosts)}")
        printed: list[str] = []
        others: list[str] = []

        def keep(rank: int, stream: int, text: str) -> None:
            (printed if (rank, stream) == (0, 1) else others).append(text)

        job_exit = self._go(sessions, job.doctor(), keep)
        try:
            fine = self.show.doctor(json.loads("\n".join(printed)))
        except ValueError:
            why = "\n".join([*others[-20:], *printed[-20:]])
            raise UsageError(f"`tweed doctor` has failed: {job_exit.culprit}\n{why}") from None
        if not fine or job_exit.culprit:
            raise UsageError(
                "these hosts cannot train together yet: mend what is found above, or go on with --no-doctor"
            )

    def _go(self, sessions: Sessions, job: Job, line: Callable[[int, int, str], None]) -> JobExit:
        """Starts a job's ranks, and returns when all have ended, or one has failed."""
        job_exit = JobExit(job)
        for number in range(len(job.hosts)):
            sessions.send(number, "run", job.order(number))
        while (left := job_exit.poll(self.now())) != 0:
            for event in sessions.poll(left):
                self._handle(event, job_exit, line)
        if job_exit.culprit:
            for event in sessions.end():
                self._handle(event, job_exit, line)
        return job_exit

    def _handle(self, event: Event, job_exit: JobExit, line: Callable[[int, int, str], None]) -> None:
        match event:
            case Message(_, "line", (rank, stream, text)):
                line(rank, stream, text)
            case Message(_, "ended", (rank, code)):
                job_exit.handle_rank(rank, code, self.now())
            case UnmarkedOutput(number, text):
                self.show.note(f"{self._name(number)}: {text}")
            case SessionEnded(number, code, printed):
                job_exit.handle_lost(
                    number, printed or f"its process has ended with exit code {code}", self.now()
                )
            case _:
                pass

    def _name(self, number: int) -> str:
        return self.job.hosts[number].name
