"""What a process prints, cut into whole lines. Pure."""

from __future__ import annotations

import re

# A carriage return ends a line too: a progress bar would never be seen otherwise. One at the very end may be
# half of an end of line, of which the other half is still to come.
_END = re.compile(rb"\r\n|\n|\r(?!$)")


class Lines:
    """Bytes go in as they come; whole lines come out.

    Args:
      most_bytes: a longer line is cut, as what never ends must not fill the memory.

    Example:
      >>> lines = Lines()
      >>> lines.take(b"one\\ntw"), lines.take(b"o\\n"), lines.rest()
      (['one'], ['two'], [])
    """

    def __init__(self, most_bytes: int = 2**16) -> None:
        self._begun, self._most_bytes = b"", most_bytes

    def take(self, data: bytes) -> list[str]:
        """The lines that end with `data`, in order, without their ends."""
        *whole, self._begun = _END.split(self._begun + data)
        while len(self._begun) > self._most_bytes:
            whole.append(self._begun[: self._most_bytes])
            self._begun = self._begun[self._most_bytes :]
        return [line.decode(errors="replace") for line in whole]

    def rest(self) -> list[str]:
        """The line that was begun and will not end; none if there is none."""
        begun, self._begun = self._begun.removesuffix(b"\r"), b""
        return [begun.decode(errors="replace")] if begun else []
