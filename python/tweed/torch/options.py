"""What a user may set about the backend; everything has a default that works."""

from __future__ import annotations

import difflib
import ipaddress
import math
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from tweed.collective import Plan
from tweed.errors import UsageError
from tweed.exchange.engine import GroupRequest
from tweed.metrics.options import EVERY_S, MetricsOptions
from tweed.transport.ltp import Ltp

Transport = Literal["auto", "shm", "tcp", "ltp"]
Binding = Literal["auto", "native", "python"]


@dataclass(frozen=True)
class Options:
    """Settings of a process group: `init_process_group("tweed", pg_options=tweed.torch.Options(...))`.

    What is not given here is taken from the environment (`TWEED_HOST`, `TWEED_TRANSPORT`, ...), then from the
    default. All ranks should be given the same.

    Args:
      host: IP address at which other hosts reach this one; `None`: loopback, for ranks of one host only. Any
        other address needs a secret.
      ports: "29600-29699", or one port: those that the firewalls between hosts let through, of which each
        rank of a host takes the first that is free; `None`: any free port, another one at each start. By
        transport "ltp" they are UDP ports too. See docs/two-machines.md.
      transport: "shm" or "tcp" for every link; "auto": shared memory within a host, TCP between hosts;
        "ltp", or an `Ltp` with settings: as "auto", but values cross between hosts in packets, and parts of a
        contribution to a sum may be lost.
      wire_only: share no memory, not even within a host.
      server: this rank of the group sums what the others contribute, and contributes nothing itself; averages
        divide by the others. `None`: all contribute.
      streams: TCP connections per pair of ranks; `None`: four.
      congestion: the kernel's congestion control for them, such as "bbr"; `None`: the system's.
      schedule: overrules the chooser, by collective: `{"all_reduce": "ring"}`.
      plan: a stored plan: the path of a file that `tweed plan --out` wrote, or the text itself, as
        `tweed.torch.plan_json` or a checkpoint gives it. Rank 0 takes it instead of choosing, and tells the
        others. It counts for groups of as many ranks as it was made for.
      deadline: how late a step may be, in seconds: a call that ends so much later than is usual for its kind
        fails, and its error names who held it up. All timeouts of the engine follow from it. `None`: as late
        as torch's own timeout allows, which is the upper limit in any case.
      secret: what admits to the run, and seals links between hosts: a text of 16 characters or more that all
        ranks are given, and nobody else (make one with `openssl rand -hex 32`).
      secret_file: a file that holds it, and that others cannot read.
      key_file: keeps this member's key across restarts; it is made if it is not there. `None`: a new key for
        each process.
      dial_only: open no port; this rank calls the others. Two such ranks on different hosts reach each other
        through one that listens, which hands on what it cannot read.
      traces: a folder; every operation is recorded there, to be replayed by `tweed.simulate.replay`.
      metrics: seconds between two looks at the links, for `tweed top` and the three below (docs/metrics.md);
        `None`: one second; 0: none.
      prometheus: "[HOST:]PORT" on which rank 0 serves metrics for Prometheus; loopback if no host is given.
      tensorboard: a folder into which rank 0 writes metrics for TensorBoard.
      opentelemetry: "http://HOST:4318" of a collector, to which rank 0 sends metrics by OTLP.
      compare_clocks: ranks whose wall clocks are more than a minute apart are refused; `None`: they are.
      binding: "native" is the C++ backend, "python" the slower one that needs no compiler; "auto": native
        if it can be had.
    """

    host: str | None = None
    ports: str | None = None
    transport: Transport | Ltp | None = None
    wire_only: bool | None = None
    server: int | None = None
    streams: int | None = None
    congestion: str | None = None
    schedule: Mapping[str, str] = field(default_factory=dict)
    plan: str | None = None
    deadline: float | None = None
    secret: str | None = field(default=None, repr=False)
    secret_file: str | None = None
    key_file: str | None = None
    dial_only: bool | None = None
    traces: str | None = None
    metrics: float | None = None
    prometheus: str | None = None
    tensorboard: str | None = None
    opentelemetry: str | None = None
    compare_clocks: bool | None = None
    binding: Binding | None = None

    @classmethod
    def resolve(cls, given: object, environment: Mapping[str, str] | None = None) -> Options:
        """`given` if it is an `Options` or asks for a group, with its gaps filled from the environment.

        Raises:
          UsageError: a value that is not among the possible ones; names it.
        """
        chosen = given if isinstance(given, cls) else cls()
        if isinstance(given, GroupRequest):
            chosen = cls(transport=given.transport, server=given.server, compare_clocks=given.compare_clocks)
        env = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for item in fields(cls):
            value = getattr(chosen, item.name)
            values[item.name] = value if value or value == 0 else _read(item.name, env)
        if values["transport"] == "ltp":
            values["transport"] = Ltp()
        return cls(**values).checked()

    def checked(self) -> Options:
        """Itself, when every value is possible."""
        if not isinstance(self.transport, Ltp):
            _one_of("transport", self.transport, ("auto", "shm", "tcp", "ltp"))
        if self.server is not None and self.server < 0:
            raise UsageError(f"server must be a rank of the group, 0 or more, not {self.server}")
        _one_of("binding", self.binding, ("auto", "native", "python"))
        if self.streams is not None and self.streams < 1:
            raise UsageError(f"streams must be at least 1, not {self.streams}")
        if self.deadline is not None and not 0 < self.deadline < math.inf:
            raise UsageError(f"deadline must be a number of seconds above 0, not {self.deadline}")
        _check_host(self.host)
        self.metrics_options()
        self.ports_range()
        _check_congestion(self.congestion)
        return self

    def ports_range(self) -> tuple[int, int] | None:
        """The first and the last of `ports`. Raises: UsageError if they are none."""
        if self.ports is None:
            return None
        first, sign, last = self.ports.partition("-")
        found = (first.strip(), last.strip() if sign else first.strip())
        if all(part.isdecimal() for part in found):
            low, high = map(int, found)
            if 0 < low <= high < 2**16:
                return low, high
        raise UsageError(
            f"ports must look like 29600-29699, within 1 to 65535, not {self.ports!r} (TWEED_PORTS)"
        )

    @property
    def ltp(self) -> Ltp | None:
        """The settings of the loss-tolerant transport, if values travel by it."""
        return self.transport if isinstance(self.transport, Ltp) else None

    @property
    def wires_alone(self) -> bool:
        """Ranks share no memory, not even within a host."""
        return self.transport == "tcp" or bool(self.wire_only)

    def overrules(self) -> dict[str, str]:
        """Builders by collective that are not chosen: asked for, or needed by server and transport."""
        needed = "star" if self.server is not None else "pairwise" if self.ltp else None
        reductions = ("all_reduce", "reduce_scatter", "reduce")
        return {**({} if needed is None else dict.fromkeys(reductions, needed)), **self.schedule}

    def stored_plan(self) -> Plan | None:
        """The plan that was given; None without one.

        Raises:
          UsageError: there is no such file, it is no plan, or it has other builders than those asked for.
        """
        if not self.plan:
            return None
        found = Plan.from_json(self.plan) if self.plan.lstrip().startswith("{") else _in_file(self.plan)
        overrules = self.overrules()
        for pick in found.picks:
            asked = overrules.get(pick.collective, pick.builder)
            if asked != pick.builder:
                raise UsageError(
                    f"the plan has '{pick.builder}' for {pick.collective}, but '{asked}' was asked for (by "
                    "schedule=, by a server, or by transport 'ltp'); omit the plan, or what it "
                    "contradicts"
                )
        return found

    def terms(self) -> dict[str, Any]:
        """What all ranks of a group must have been given alike, for comparison."""
        return {"server": self.server, "ltp": None if self.ltp is None else asdict(self.ltp)}

    def metrics_options(self) -> MetricsOptions:
        """What it says of metrics. Raises: UsageError for what cannot be, or if a package is missing."""
        every_s = EVERY_S if self.metrics is None else self.metrics
        return MetricsOptions(every_s, self.prometheus, self.tensorboard, self.opentelemetry)


def _check_host(host: str | None) -> None:
    """Raises UsageError for what is no address, such as the name of an interface."""
    if host is None:
        return
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        raise UsageError(
            f"host must be an IP address of this machine, at which the others reach it, not {host!r}; "
            "`ip -brief address` shows those that it has (TWEED_HOST)"
        ) from None


def _check_congestion(name: str | None) -> None:
    """Raises UsageError if the kernel does not have it: a link would be refused, and look like a firewall."""
    if name is None:
        return
    try:
        with socket.socket() as trial:
            trial.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    except OSError as error:
        path = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
        there = ", ".join(path.read_text().split()) if path.exists() else "others"
        raise UsageError(
            f"congestion control {name!r} is not available here ({error.strerror}); available are {there}. "
            f"Correct TWEED_CONGESTION, or load it: sudo modprobe tcp_{name}"
        ) from None


def _in_file(path: str) -> Plan:
    try:
        return Plan.from_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"the plan {path} cannot be read: {error.strerror}; `tweed plan` makes one with --out"
        ) from error
    except (UsageError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None


#: How the text of a variable is read that is not text: what reads it, and what it must be.
_READERS: dict[str, tuple[Callable[[str], object], str]] = {
    **dict.fromkeys(("streams", "server"), (int, "a whole number")),
    **dict.fromkeys(("deadline", "metrics"), (float, "a number of seconds")),
    **dict.fromkeys(
        ("dial_only", "wire_only", "compare_clocks"), ({"0": False, "1": True}.__getitem__, "0 or 1")
    ),
}


_PREFIX = "TWEED_"
#: Variables that are no fields of `Options`.
_OTHERS = {"TWEED_AGENT", "TWEED_CACHE", "TWEED_JOIN", "TWEED_LOG", "TWEED_TESTBED"}


def known_variables() -> list[str]:
    """All variables that tweed reads."""
    return sorted({f"TWEED_{item.name.upper()}" for item in fields(Options)} | _OTHERS)


def unknown_variables(env: Mapping[str, str]) -> dict[str, str | None]:
    """Variables that begin as tweed's do and are none; for each the one that was meant, if that is clear."""
    known = [name.removeprefix(_PREFIX) for name in known_variables()]
    given = sorted(name.removeprefix(_PREFIX) for name in env if name.startswith(_PREFIX))
    close = {name: difflib.get_close_matches(name, known, 1, 0.75) for name in given if name not in known}
    return {_PREFIX + name: _PREFIX + meant[0] if meant else None for name, meant in close.items()}


def _read(name: str, env: Mapping[str, str]) -> object:
    text = env.get(f"TWEED_{name.upper()}")
    if name == "schedule":
        return _pairs(text or "")
    if name in ("transport", "binding"):
        return text or "auto"
    if not text or name not in _READERS:
        return text or None
    read, kind = _READERS[name]
    try:
        return read(text)
    except (ValueError, KeyError):
        raise UsageError(f"TWEED_{name.upper()} must be {kind}, not {text!r}") from None


def _pairs(text: str) -> dict[str, str]:
    """Reads pairs such as "all_reduce=ring,broadcast=binomial"."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if any(not sign for _, sign, _ in pairs):
        raise UsageError(f"TWEED_SCHEDULE must look like all_reduce=ring,broadcast=binomial, not {text!r}")
    return {name.strip(): builder.strip() for name, _, builder in pairs}


def _one_of(name: str, value: str | None, possible: tuple[str, ...]) -> None:
    if value is not None and value not in possible:
        raise UsageError(f"{name} must be one of {', '.join(possible)}, not {value!r}")
