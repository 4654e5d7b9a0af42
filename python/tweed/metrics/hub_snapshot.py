"""What is known of a hub and its members at one moment, and differences over time; see `snapshot`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(slots=True)
class HubMember:
    """What a hub has counted of one member. Who counts changes it; others have copies.

    Attributes:
      number: by which it goes at the hub.
      key: the member's, 64 hex digits; empty: it is a rank of a group.
      state: what it is about, in a word.
      quiet_s: seconds since its last contribution counted or was rejected; None: there was none.
      counted: contributions with a weight.
      rejected: those that came to nothing at a commit.
      late: those that were dropped before they moved, as their base was too old.
      delay: commits between base and commit, summed over those that counted or were rejected.
      longest_delay: the most of one.
      weight: summed.
      bytes_in: payloads that came from it.
      bytes_out: models that went to it.
      up, down: bytes per second of its link, where the hub has measured these; None elsewhere.
      reason, score: of its last rejection, in words, and what the rule went by; empty, None: there was none.
    """

    number: int
    key: str = ""
    state: str = ""
    quiet_s: float | None = None
    counted: int = 0
    rejected: int = 0
    late: int = 0
    delay: int = 0
    longest_delay: int = 0
    weight: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    up: float | None = None
    down: float | None = None
    reason: str = ""
    score: float | None = None

    @property
    def mean_delay(self) -> float:
        """Commits between base and commit; 0 where there was no contribution."""
        return self.delay / max(1, self.counted + self.rejected)

    def since(self, before: HubMember | None) -> HubMember:
        """What was counted after `before`."""
        if before is None:
            return self
        grown = {name: getattr(self, name) - getattr(before, name) for name in _MEMBER_COUNTERS}
        return replace(self, **grown)


_MEMBER_COUNTERS = ("counted", "rejected", "late", "delay", "weight", "bytes_in", "bytes_out")


@dataclass(frozen=True, slots=True)
class HubCounts:
    """What a hub has counted.

    Attributes:
      version: of its model: commits so far.
      there, known: members that have a link, and that ever came.
      bytes_in, bytes_out: of payloads and of models, of all members.
      members: by number; where there are very many, those that have contributed last.
      refused: callers that were turned away, by reason.
    """

    version: int = 0
    there: int = 0
    known: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    members: tuple[HubMember, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)

    def member(self, number: int) -> HubMember | None:
        """The member of this number, if it is known."""
        return next((one for one in self.members if one.number == number), None)

    def since(self, before: HubCounts | None) -> HubCounts:
        """What was counted after `before`; all of it if that was of another run."""
        if before is None or before.version > self.version:
            return self
        grown = {name: getattr(self, name) - getattr(before, name) for name in _COUNTERS}
        earlier = {one.number: one for one in before.members}
        members = tuple(one.since(earlier.get(one.number)) for one in self.members)
        return replace(self, **grown, members=members)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> HubCounts:
        """From plain values, as `dataclasses.asdict` makes them."""
        return cls(**{**values, "members": tuple(HubMember(**one) for one in values["members"])})


_COUNTERS = ("version", "bytes_in", "bytes_out")
