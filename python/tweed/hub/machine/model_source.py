"""A member that has the newest model, and hands it to others: the way down, as an aggregator is the way up.

Who is asked for a version that it has hands it out. A newer one than it has may be on its way, so who asks
for that waits; when a still newer one comes instead, or the version is older than what is held, those that
asked are told that there is none, and ask the hub.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

#: Versions that are held: who asks for the one before the newest was told of it a moment ago.
_HELD = 2


@dataclass(frozen=True, slots=True)
class HandOver:
    """Give this to `member`: the model of that version, if it is `there`; else tell it that there is none."""

    member: int
    version: int
    model: Any
    there: bool = True


@dataclass(slots=True)
class ModelSource:
    """Holds the newest models of a member, and says which of them it hands to which other member."""

    _models: dict[int, Any] = field(default_factory=dict)
    _waiting: list[tuple[int, int]] = field(default_factory=list)  # members and versions
    _out: deque[HandOver] = field(default_factory=deque)

    def holds(self, version: int, model: Any) -> None:
        """This model has come."""
        self._models[version] = model
        for old in sorted(self._models)[:-_HELD]:
            del self._models[old]
        waiting, self._waiting = self._waiting, []
        for member, wanted in waiting:
            self.asked(member, wanted)

    def asked(self, member: int, version: int) -> None:
        """`member` wants the model of that version."""
        if version in self._models or version < max(self._models, default=0):
            self._out.append(HandOver(member, version, self._models.get(version), version in self._models))
        else:
            self._waiting.append((member, version))

    def poll(self) -> HandOver | None:
        """What is to be handed over next; None: nothing."""
        return self._out.popleft() if self._out else None
