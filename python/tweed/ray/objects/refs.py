"""The id of an object: a value that travels as any other does."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ref:
    """An object's id. It may be made, sent and asked for before there is an object.

    Two objects never have the same one: `Ref.new()` draws 128 random bits. The object stays until somebody
    calls `delete`, however many refs there are.

    Example:
        >>> ref = Ref.new()
        >>> ref == Ref(ref.id) and len(str(ref)) == 32
        True
    """

    id: int

    @staticmethod
    def new() -> Ref:
        """One that nobody else has."""
        return Ref(int.from_bytes(os.urandom(16)))

    def __str__(self) -> str:
        return f"{self.id:032x}"
