"""What ranks must agree on before they make a group, and who does not. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from tweed import distribution

#: Logs, metrics and traces of ranks whose clocks differ by more could not be read together.
MOST_APART_S = 60.0
_MOST_SHOWN = 300  # letters of a name


@dataclass(frozen=True, slots=True)
class RankTerms:
    """What one rank says of itself.

    Attributes:
      tweed: the version that it runs.
      size: of the group, as it was told.
      host: its name.
      clock_s: its clock when it said so, in seconds since 1970.
      options: what all must have been given alike, see `Options.terms`.
      epoch: of members that come and go, whose group it is to be; None: of none.
    """

    tweed: str
    size: int
    host: str
    clock_s: float
    options: Mapping[str, Any]
    epoch: int | None = None

    def encode(self) -> str:
        """As text for a store."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Self:
        """The inverse of `encode`; another version's may hold more, or less."""
        known = json.loads(text)
        return cls(
            str(known.get("tweed", "another version"))[:_MOST_SHOWN],
            int(known.get("size", 0)),
            str(known.get("host", "another host"))[:_MOST_SHOWN],
            float(known.get("clock_s", 0.0)),
            dict(known.get("options", {})),
            known.get("epoch"),
        )


def conflict(first: RankTerms, rank: int, other: RankTerms, now_s: float) -> str:
    """Why rank 0 and rank `rank` cannot make a group, and what to do; empty if they can.

    Args:
      first: of rank 0.
      now_s: rank 0's clock, after the other's had been read.
    """
    if first.tweed != other.tweed:
        return (
            f"rank 0 on {first.host} has tweed {first.tweed}, rank {rank} on {other.host} {other.tweed}; "
            f"install one version everywhere: {distribution.install_version('tweed', first.tweed)}"
        )
    if first.size != other.size:
        return (
            f"rank 0 on {first.host} was told of {first.size} ranks, rank {rank} on {other.host} of "
            f"{other.size}; start all with one WORLD_SIZE (torchrun: one --nnodes and --nproc-per-node)"
        )
    if first.epoch != other.epoch:
        return (
            f"rank 0 on {first.host} makes the group of epoch {first.epoch}, rank {rank} on {other.host} "
            f"that of epoch {other.epoch}; the lower one is over: start again who makes it"
        )
    return ahead(rank, other, 0, first.host, now_s) or _options(first, rank, other)


def ahead(rank: int, said: RankTerms, reader: int, host: str, now_s: float) -> str:
    """What is wrong if a rank's clock is far ahead of the reader's; empty if it is not.

    What was said lies in the past by both clocks, if they go together. That it lies far back may mean that
    the reader has come late, so a clock that is behind is found by the rank that it belongs to.

    Args:
      reader: a rank that has read `said`.
      host: the reader's.
      now_s: the reader's clock, afterwards.
    """
    if said.clock_s - now_s <= MOST_APART_S:
        return ""
    return (
        f"the clock of rank {rank} on {said.host} is {said.clock_s - now_s:.0f} s ahead of that of rank "
        f"{reader} on {host}; on the host that is wrong (`date -u` shows it): sudo timedatectl set-ntp true"
    )


def _options(first: RankTerms, rank: int, other: RankTerms) -> str:
    """The first option that differs."""
    for name, value in first.options.items():
        told = other.options.get(name)
        if told != value:
            word = "transport" if name == "ltp" else name
            return (
                f"rank 0 was given {word} {_in_words(name, value)}, rank {rank} {_in_words(name, told)}; "
                "give all ranks of a group the same"
            )
    return ""


def _in_words(name: str, value: Any) -> str:
    if name == "ltp":
        return "no 'ltp'" if value is None else f"'ltp' with {value}"
    return "none" if value is None else f"rank {value}" if name == "server" else str(value)
