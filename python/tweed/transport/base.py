"""The contract of the stage. A transport is a frozen value of settings; the engine carries them out."""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable


@runtime_checkable
class Transport(Protocol):
    """How the values of a group cross the links between hosts.

    Attributes:
      name: what the engine calls it.
    """

    name: ClassVar[str]

    @property
    def may_lose(self) -> bool:
        """Whether parts of a contribution may be missing from a sum. If not, numbers are those of TCP."""
        ...
