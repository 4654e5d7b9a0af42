"""What a process prints, cut into whole lines. Pure."""

from __future__ import annotations

import re

#: A longer line is cut: what never ends must not fill the memory.
_MOST_BYTES = 2**16
# A carriage return ends a line too: a progress bar would never be seen otherwise. One at the very end may be
# half of an end of line, of which the other half is still to come.
_END = re.compile(rb"\r\n|\n|\r(?!$)")


class Lines:
    """Bytes go in as they come; whole lines come out.

    Example:
      >>> lines = Lines()
      >>> lines.take(b"one\\ntw"), lines.take(b"o\\n"), lines.rest()
      (['one'], ['two'], [])
    """

    def __init__(self) -> None:
        self._begun = b""

    def take(self, data: bytes) -> list[str]:
        """The lines that end with `data`, in order, without their ends."""
        *whole, self._begun = _END.split(self._begun + data)
        while len(self._begun) > _MOST_BYTES:
            whole.append(self._begun[:_MOST_BYTES])
            self._begun = self._begun[_MOST_BYTES:]
        return [line.decode(errors="replace") for line in whole]

    def rest(self) -> list[str]:
        """The line that was begun and will not end; none if there is none."""
        begun, self._begun = self._begun.removesuffix(b"\r"), b""
        return [begun.decode(errors="replace")] if begun else []
