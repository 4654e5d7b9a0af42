"""Where a hub is and who it is, and what a process shows to be let in."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tweed.errors import UsageError

_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HubAddress:
    """Where members call.

    Args:
      place: "host:port".
      key: the hub's, 64 hex digits; None: whoever answers there, which only loopback allows.

    Example:
      >>> HubAddress.parse("localhost:7070").key is None
      True
    """

    place: str
    key: str | None

    @classmethod
    def parse(cls, text: str) -> HubAddress:
        """From "KEY@host:port", as `tweed serve` prints it; on loopback "host:port" is enough.

        Raises: UsageError for anything else; without the key whoever has the secret could pose as the hub.
        """
        key, at, place = text.strip().rpartition("@")
        host, colon, port = place.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 2**16):
            raise UsageError(
                f"{text!r} is not the address of a hub: give KEY@HOST:PORT, as `tweed serve` prints it"
            )
        if at and not _KEY.fullmatch(key.lower()):
            raise UsageError(
                f"{key!r} is not the key of a hub: a key has 64 hex digits, and `tweed serve` prints it"
            )
        if not at and not _is_loopback(host.strip("[]")):
            raise UsageError(
                f"the key of the hub at {place} is missing: give KEY@{place}, as `tweed serve` prints it. "
                "The secret alone does not tell the hub from other processes that have it"
            )
        return cls(place, key.lower() or None)

    def __str__(self) -> str:
        return self.place if self.key is None else f"{self.key}@{self.place}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a process shows: the secret that admits, and its own key.

    Args:
      secret: a text of 16 characters or more that the hub and its members were given, and nobody else; None:
        on loopback none is needed.
      secret_file: a file that holds it, and that others cannot read.
      key_file: keeps the process's key, which is who it is, across restarts; it is made if it is not there.
        None: a new key for each process.
    """

    secret: str | None = field(default=None, repr=False)
    secret_file: str | None = None
    key_file: str | None = None

    @classmethod
    def of(cls, key_file: str | None, environment: Mapping[str, str] = os.environ) -> Credentials:
        """From TWEED_SECRET, TWEED_SECRET_FILE and TWEED_KEY_FILE; `key_file` comes before that."""
        read = environment.get
        return cls(
            read("TWEED_SECRET"), read("TWEED_SECRET_FILE"), key_file or read("TWEED_KEY_FILE") or None
        )

    @property
    def anonymous(self) -> Credentials:
        """Credentials with the same secret and a new key: a process has one kind of links at a time with its
        own."""
        return replace(self, key_file=None)
