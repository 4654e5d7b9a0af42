"""Several ranks: they tell each other of their hosts, then measure pair after pair. Impure."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tweed import distribution
from tweed.doctor import verdict
from tweed.doctor.checks import versions
from tweed.doctor.estimate import Clock
from tweed.doctor.finding import Finding, Level
from tweed.doctor.matrix import Link, Matrix, Member
from tweed.doctor.table import examine
from tweed.errors import DeadlineExceeded, TweedError
from tweed.exchange.store import reading, value
from tweed.testbed import Network, RankFailed, run_ranks

if TYPE_CHECKING:
    from tweed._core import Node
    from tweed.torch.meeting import Place
    from tweed.torch.options import Options

_WAIT = timedelta(seconds=60)  # for a rank to turn up, and for each message, unless the caller says otherwise


@dataclass(frozen=True, slots=True)
class RankReport:
    """What a rank says before anything is measured: no `descriptor` if its engine does not start."""

    member: Member
    descriptor: dict[str, Any] | None
    findings: tuple[Finding, ...] = ()

    def plain(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return {
            "member": asdict(self.member),
            "descriptor": self.descriptor,
            "findings": [one.plain() for one in self.findings],
        }

    @classmethod
    def from_plain(cls, value: dict[str, Any]) -> RankReport:
        """The inverse of `plain`."""
        found = tuple(Finding.from_plain(one) for one in value["findings"])
        return cls(Member(**value["member"]), value["descriptor"], found)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a rank has measured as the leader of its pairs; clocks by rank; or why it could not."""

    links: tuple[Link, ...] = ()
    clocks: dict[int, Clock] = field(default_factory=dict)
    error: str | None = None

    def plain(self) -> dict[str, Any]:
        """The measurements as JSON has them."""
        return asdict(self)

    @classmethod
    def from_plain(cls, value: dict[str, Any]) -> Measured:
        """The inverse of `plain`, and of JSON, whose keys are texts."""
        clocks = {int(rank): Clock(**clock) for rank, clock in value["clocks"].items()}
        return cls(tuple(Link(**link) for link in value["links"]), clocks, value["error"])


@dataclass(frozen=True, slots=True)
class Report:
    """What a doctor's visit gave."""

    findings: tuple[Finding, ...]
    matrix: Matrix | None = None

    def plain(self) -> dict[str, Any]:
        """For JSON: `findings`, and `matrix` (null for one host)."""
        matrix = None if self.matrix is None else self.matrix.plain()
        return {"findings": [finding.plain() for finding in self.findings], "matrix": matrix}


def on_this_machine(size: int, network: Network | None) -> Report:
    """Looks at this host, and measures between `size` ranks on it: in `network`, or over TCP on loopback.

    Raises:
      NoTestbed: the network cannot be built here.
    """
    own = examine()
    with tempfile.TemporaryDirectory(prefix="tweed-doctor-") as folder:
        path = str(Path(folder) / "store")
        limit_s = 60.0 + 10.0 * size * size
        try:
            report: Report = run_ranks(_local, size, path, timeout=limit_s, network=network)[0]
        except (RankFailed, DeadlineExceeded) as error:
            report = Report((_broken(error.__cause__ or error),))
    return replace(report, findings=(*own, *report.findings))


def _broken(error: BaseException) -> Finding:
    what = f"links could not be measured: {type(error).__name__}: {error}"
    return Finding(Level.ERROR, what, "mend what is found above first; then please report this line", "links")


def _local(rank: int, size: int, path: str) -> Report | None:
    from torch._C._distributed_c10d import FileStore

    from tweed.torch.options import Options

    options = Options.resolve(None)
    if "TWEED_TRANSPORT" not in os.environ:
        options = replace(options, transport="tcp")  # memory that ranks share tells nothing of a network
    return _meet(FileStore(path, size), rank, size, options, ())


def under_torchrun(wait_s: float = _WAIT.total_seconds()) -> Report | None:
    """Takes part as one of torchrun's ranks, one of which looks at each host. The report is rank 0's.

    Where they do not meet within `wait_s` seconds, each reports what it knows.
    """
    import torch
    from torch.distributed.rendezvous import rendezvous

    from tweed.torch.options import Options

    torch.set_num_threads(1)
    wait = timedelta(seconds=wait_s)
    try:
        store, rank, size = next(rendezvous("env://", timeout=wait))
        host = examine() if os.environ.get("LOCAL_RANK", "0") == "0" else []
        return _meet(store, rank, size, Options.resolve(None), host, wait)
    except torch.distributed.DistError as error:
        return Report((*examine(), _apart(str(error).partition("\n")[0], wait_s)))


def _apart(why: str, wait_s: float) -> Finding:
    place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    what = f"ranks do not meet at {place} within {wait_s:.0f} s: {why}"
    port = os.environ["MASTER_PORT"]
    fix = (
        "start all ranks with one MASTER_PORT, and with MASTER_ADDR as the others see the host of rank 0; "
        f"if a firewall is between, there: sudo ufw allow proto tcp from NETWORK to any port {port}"
    )
    return Finding(Level.ERROR, what, fix, "rendezvous")


def _meet(
    store: Any, rank: int, size: int, options: Options, host: Sequence[Finding], wait: timedelta = _WAIT
) -> Report | None:
    """Exchanges descriptors through the store, then measures, if they give hope. The report is rank 0's."""
    from torch._C._distributed_c10d import PrefixStore

    from tweed.torch.meeting import Place

    store = PrefixStore("tweed-doctor", store)
    store.set_timeout(wait)
    place = Place(store, "doctor", rank, size, wait)
    report = _visit(place, options, host)
    store.set(f"done/{rank}", "")
    if rank == 0:  # the store is rank 0's: it leaves last
        store.wait([f"done/{other}" for other in range(size)])
    return report


def _visit(place: Place, options: Options, host: Sequence[Finding]) -> Report | None:
    from tweed.torch.node import node

    rank, size = place.rank, place.size
    try:
        engine = node(options)
        mine = _report(engine, rank, host)
    except TweedError as error:
        mine = _failed_report(rank, error, host)
    reports = [RankReport.from_plain(value) for value in _exchanged(place, "told", mine.plain())]
    found = [*_by_host(reports), *verdict.of_versions([one.member for one in reports])]
    descriptors = [one.descriptor for one in reports if one.descriptor is not None]
    found += verdict.of_names(descriptors)
    hopeless = list(verdict.of_descriptors(descriptors))
    if size < 2 or hopeless or len(descriptors) < size:
        return Report((*found, *hopeless)) if rank == 0 else None
    rows = _exchanged(place, "measured", _try(engine, place, options))
    measured = [Measured.from_plain(value) for value in rows]
    if rank != 0:
        return None
    if errors := [one.error for one in measured if one.error]:
        return Report((*found, _failed(errors)))
    matrix = _matrix([one.member for one in reports], measured)
    return Report((*found, *verdict.of_matrix(matrix)), matrix)


def _exchanged(place: Place, key: str, mine: dict[str, Any]) -> list[dict[str, Any]]:
    """What every rank has left under `key`. As JSON: torch's store is open to all, and pickles run code."""
    place.store.set(f"{key}/{place.rank}", json.dumps(mine))
    with reading(place.store, "reports of ranks"):
        return [dict(json.loads(value(place.store, f"{key}/{rank}"))) for rank in range(place.size)]


def _report(engine: Node, rank: int, host: Sequence[Finding]) -> RankReport:
    descriptor = json.loads(engine.card())
    ours = (distribution.version() or "none", versions.torch() or "none")
    return RankReport(
        Member(rank, descriptor["host"], descriptor["tcp"] or "dials out only", *ours),
        descriptor,
        tuple(host),
    )


def _failed_report(rank: int, error: TweedError, host: Sequence[Finding]) -> RankReport:
    """The report of a rank whose engine does not start."""
    name, ours = socket.gethostname(), (distribution.version() or "none", versions.torch() or "none")
    found = Finding(Level.ERROR, f"the engine of rank {rank} does not start: {error}", "as it says", "links")
    return RankReport(Member(rank, name, "", *ours), None, (*host, found))


def _by_host(reports: Sequence[RankReport]) -> list[Finding]:
    """Findings of all hosts; with their names where there are several."""
    several = len({one.member.host for one in reports}) > 1
    return [
        replace(finding, host=one.member.host) if several else finding
        for one in reports
        for finding in one.findings
    ]


def _try(engine: Node, place: Place, options: Options) -> dict[str, Any]:
    try:
        return _measure(engine, place, options).plain()
    except TweedError as error:
        return Measured(error=f"rank {place.rank}: {error}").plain()


def _measure(engine: Node, place: Place, options: Options) -> Measured:
    """One pair at a time, so that no pair disturbs another; the barriers see to that."""
    from tweed.doctor import probe
    from tweed.torch.messages import barrier
    from tweed.torch.rendezvous import join

    group, _ = join(engine, place, options)
    links: list[Link] = []
    clocks: dict[int, Clock] = {}
    for one, other in combinations(range(place.size), 2):
        barrier(group)
        if place.rank == one:
            found, clocks[other] = probe.lead(group, other)
            links += found
        elif place.rank == other:
            probe.follow(group, one)
    barrier(group)
    return Measured(tuple(links), clocks if place.rank == 0 else {})


def _matrix(members: Sequence[Member], measured: Sequence[Measured]) -> Matrix:
    clocks = {0: Clock(0.0, 0.0), **measured[0].clocks}
    known = [
        replace(member, clock_s=clocks[member.rank].ahead_s, clock_error_s=clocks[member.rank].error_s)
        for member in members
    ]
    links = sorted((link for one in measured for link in one.links), key=lambda link: (link.src, link.dst))
    return Matrix(tuple(known), tuple(links))


def _failed(errors: Sequence[str]) -> Finding:
    what = f"ranks could not talk to each other: {'; '.join(errors)}"
    fix = (
        "let the hosts through each other's firewalls, all TCP ports: sudo ufw allow from NETWORK; "
        "check TWEED_HOST on the hosts that are named"
    )
    return Finding(Level.ERROR, what, fix, "links")
