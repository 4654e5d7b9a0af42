"""Findings from what ranks told and what was measured between them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from tweed import distribution
from tweed.doctor.finding import Finding, Level
from tweed.doctor.matrix import Link, Matrix, Member
from tweed.doctor.system import loopback

_SLOW, _FAR_S = 0.5, 0.010  # of the median's speed; a round trip worth mentioning
_LOSSY = 0.003  # TCP with cubic notices
_CLOCK_NOTE_S, _CLOCK_WARNING_S = 0.05, 1.0


def of_versions(members: Sequence[Member]) -> Iterator[Finding]:
    """Ranks that run different versions."""
    for name in ("tweed", "torch"):
        ranks: dict[str, list[int]] = {}
        for member in members:
            ranks.setdefault(getattr(member, name), []).append(member.rank)
        if len(ranks) > 1:
            found = "; ".join(f"{version} at {_ranks(where)}" for version, where in ranks.items())
            usual = max(ranks, key=lambda version: len(ranks[version])).partition("+")[0]
            level = Level.ERROR if name == "tweed" else Level.WARNING
            fix = f"install one version everywhere: {distribution.install_version(name, usual)}"
            yield Finding(level, f"ranks have different versions of {name}: {found}", fix, "versions")
        else:
            yield Finding(Level.OK, f"all ranks have {name} {next(iter(ranks))}", "", "versions")


def of_descriptors(descriptors: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Ranks of several hosts or networks of which one listens on loopback: they could never meet.

    Args:
      descriptors: address descriptors of the engine, by rank: `boot`, `network`, `host` and `tcp` count.
    """
    if len({(descriptor["boot"], descriptor["network"]) for descriptor in descriptors}) < 2:
        return
    for rank, descriptor in enumerate(descriptors):
        if _loopback(str(descriptor["tcp"])):
            what = (
                f"rank {rank} on {descriptor['host']} listens on loopback ({descriptor['tcp']}), "
                "and ranks are on several hosts: the others cannot reach it"
            )
            fix = f"on {descriptor['host']}: export TWEED_HOST=ADDRESS; `tweed doctor` there names it"
            yield Finding(Level.ERROR, what, fix, "links")


def of_names(descriptors: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Hosts that have one name: nobody can tell which of them is meant.

    Args:
      descriptors: as for `of_descriptors`; `boot` and `host` count.
    """
    boots: dict[str, dict[str, list[int]]] = {}
    for rank, descriptor in enumerate(descriptors):
        boots.setdefault(descriptor["host"], {}).setdefault(descriptor["boot"], []).append(rank)
    for name, hosts in boots.items():
        if len(hosts) > 1:
            where = " and ".join(_ranks(ranks) for ranks in hosts.values())
            what = f"{len(hosts)} hosts are called {name}: {where}; lines that name a host may mean either"
            fix = f"on all but one of them: sudo hostnamectl set-hostname {name}-2"
            yield Finding(Level.WARNING, what, fix, "links")


def of_matrix(matrix: Matrix) -> Iterator[Finding]:
    """Clocks that differ, links that stand out."""
    yield from _clocks(matrix.members)
    inner = {member.rank for member in matrix.members if _loopback(member.address)}
    wires = [link for link in matrix.links if link.via == "tcp" and not inner & {link.src, link.dst}]
    if not wires:
        yield Finding(
            Level.OK, "all ranks are on one host: figures tell of it, not of a network", "", "links"
        )
    found = [*_slow(wires, matrix), *_unsteady(wires), *_again(wires)]
    if wires and not found:
        slowest, farthest = min(link.bandwidth for link in wires), max(link.rtt_median_s for link in wires)
        words = f"slowest {_mbits(slowest)} Mbit/s, farthest {farthest * 1000:.2f} ms there and back"
        found = [Finding(Level.OK, f"{len(wires)} links, much alike: {words}", "", "links")]
    yield from found


def _clocks(members: Sequence[Member]) -> Iterator[Finding]:
    known = [(member, abs(member.clock_s or 0.0) - (member.clock_error_s or 0.0)) for member in members]
    for member, off in known:
        if off < _CLOCK_NOTE_S or member.clock_s is None:
            continue
        level = Level.WARNING if off >= _CLOCK_WARNING_S else Level.NOTE
        where = "ahead of" if member.clock_s > 0 else "behind"
        off_s = f"{abs(member.clock_s):.3f} s {where} rank 0's"
        what = f"the clock of rank {member.rank} on {member.host} is {off_s}"
        fix = f"on {member.host}: sudo timedatectl set-ntp true; or sudo apt install chrony"
        yield Finding(level, what, fix, "clock")
    if all(off < _CLOCK_NOTE_S for _, off in known):
        yield Finding(Level.OK, "clocks of all ranks agree within 50 ms or what can be measured", "", "clock")


def _slow(wires: Sequence[Link], matrix: Matrix) -> Iterator[Finding]:
    if len(wires) < 3:
        return
    usual = median(link.bandwidth for link in wires)
    for link in wires:
        if link.bandwidth < _SLOW * usual:
            hosts = f"{matrix.members[link.src].host} and {matrix.members[link.dst].host}"
            what = (
                f"from rank {link.src} to rank {link.dst} ({hosts}) go {_mbits(link.bandwidth)} Mbit/s, "
                f"where the median link carries {_mbits(usual)}"
            )
            fix = (
                "if all slow links share one host, look at its cable, Wi-Fi and interface there: ip -s link; "
                "TWEED_HOST picks the interface"
            )
            yield Finding(Level.WARNING, what, fix, "links")


def _unsteady(wires: Sequence[Link]) -> Iterator[Finding]:
    for link in wires:
        if link.src < link.dst and link.rtt_p99_s > max(5 * link.rtt_median_s, _FAR_S):
            usual, worst = (f"{time * 1000:.1f} ms" for time in (link.rtt_median_s, link.rtt_p99_s))
            way = f"between ranks {link.src} and {link.dst} a round trip takes"
            what = f"{way} {usual} as a rule, and {worst} in one of a hundred"
            fix = "a busy host, Wi-Fi, or packets lost on the way: look at load (top) and drops (ip -s link)"
            yield Finding(Level.NOTE, what, fix, "links")


def _again(wires: Sequence[Link]) -> Iterator[Finding]:
    for link in wires:
        if link.sent_again is not None and link.sent_again >= _LOSSY:
            share = f"about {link.sent_again:.1%} of the packets"
            what = f"from rank {link.src} to rank {link.dst} {share} had to be sent again"
            fix = (
                "find where they are lost (ip -s link on both hosts); where that cannot be helped, "
                "on all ranks: export TWEED_CONGESTION=bbr"
            )
            yield Finding(Level.NOTE, what, fix, "links")


def _mbits(bytes_per_s: float) -> str:
    return f"{bytes_per_s * 8 / 1e6:,.1f}"


def _loopback(place: str) -> bool:
    """Whether an address with a port, "127.0.0.1:80" or "[::1]:80", is loopback's. Who dials has none."""
    return loopback(place.rpartition(":")[0].strip("[]"))


def _ranks(ranks: Sequence[int]) -> str:
    words = ", ".join(map(str, ranks))
    return f"rank {words}" if len(ranks) == 1 else f"ranks {words}"
