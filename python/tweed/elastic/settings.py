"""What a run of members that come and go is given."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from tweed.errors import UsageError
from tweed.links.address import HubAddress


@dataclass(frozen=True, slots=True)
class Elastic:
    """How many members there may be, and how they reach each other.

    Args:
      min_members: fewer wait for others.
      max_members: more are not let in.
      host: the address that this process is reached at, as TWEED_HOST has it by default, or else 127.0.0.1;
        only loopback without a secret. All members have the same TWEED_SECRET, or TWEED_SECRET_FILE: see
        docs/security.md.
      port: that joiners call; 0: any, and `Control.address` says which.
      key_file: keeps this process's permanent id; None: TWEED_KEY_FILE, or another one each time.
      witnesses: "KEY@host:port" of 1, 3 or 5 processes that decide who is a member, as `tweed witness`
        prints it. None: the members decide, and half of them or more must not be lost at once.
      about: what the run says about itself to who joins, such as its settings: `Control.elastic.about`.
      joiner_mbit: Mbit/s that this member gives to who joins, at most, so that steps of those that train
        stay quick: a quarter of its uplink is a good share. None: what its links take.

    With TWEED_DIAL_ONLY=1 a member opens no port: it calls others, and nobody calls it, as behind NAT. Two
    such members have no link, and reach each other through a third one.

    Who joins a run takes from it the numbers of members, the witnesses, and what it says about itself.

    Raises: UsageError if there is no such number of members or witnesses, or no such witness.
    """

    min_members: int
    max_members: int
    host: str = field(default_factory=lambda: os.environ.get("TWEED_HOST", "127.0.0.1"))
    port: int = 0
    key_file: str | None = None
    witnesses: tuple[str, ...] = ()
    about: str = ""
    joiner_mbit: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.min_members <= self.max_members:
            raise UsageError(
                f"Elastic({self.min_members}, {self.max_members}): give 1 <= least <= most members"
            )
        if self.joiner_mbit is not None and not self.joiner_mbit > 0:
            raise UsageError(f"joiner_mbit={self.joiner_mbit}: give more than 0 Mbit/s, or None for no bound")
        keys = [witness.key for witness in self.witness_addresses()]
        if None in keys or len(set(keys)) < len(keys):
            raise UsageError(
                f"witnesses={self.witnesses}: give KEY@HOST:PORT of each once, as `tweed witness` prints it"
            )
        if keys and len(keys) % 2 == 0:
            raise UsageError(
                f"{len(keys)} witnesses: more than half of them must answer, so that no more may be lost "
                f"than of {len(keys) - 1}. Give 1, 3 or 5"
            )

    def witness_addresses(self) -> list[HubAddress]:
        """Where witnesses are called."""
        return [HubAddress.parse(text) for text in self.witnesses]
