"""A process of the fork server whose start does not wait for the fork, which takes some 10 ms."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from multiprocessing import context, forkserver, popen_forkserver, reduction, spawn, util
from multiprocessing.connection import wait
from typing import Any

#: What the standard library, too, says of a process whose server has ended.
_NEVER_WAS = 255


class _Popen(popen_forkserver.Popen):
    """As in the standard library, but the number of the process is read when it is asked for.

    The server writes two numbers to `sentinel`: that one after the fork, and how the process has ended.
    """

    _number: int | None = None

    def _launch(self, process_obj: Any) -> None:
        content: Any = io.BytesIO()
        context.set_spawning_popen(self)
        try:
            reduction.dump(spawn.get_preparation_data(process_obj.name), content)
            reduction.dump(process_obj, content)
        finally:
            context.set_spawning_popen(None)
        self.sentinel, to_child = forkserver.connect_to_new_process(self._fds)  # type: ignore[attr-defined]
        # The child takes the end of this copy for the end of its parent.
        held = (os.dup(to_child), self.sentinel)
        self.finalizer = util.Finalize(self, util.close_fds, held)  # type: ignore[attr-defined]
        with open(to_child, "wb") as file:
            file.write(content.getbuffer())

    @property
    def pid(self) -> int:  # type: ignore[override]
        """The number of the process. Waits for the fork.

        Raises: ProcessLookupError if the server has ended before it.
        """
        if self._number is None:
            try:
                self._number = forkserver.read_signed(self.sentinel)
            except EOFError:
                self.returncode = _NEVER_WAS
                raise ProcessLookupError("the fork server has ended") from None
        return self._number

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """How the process has ended; None if it has not."""
        if self._number is None:
            if flag == os.WNOHANG and not wait([self.sentinel], 0):
                return None
            with suppress(ProcessLookupError):
                _ = self.pid
        return super().poll(flag)


class Process(context.ForkServerProcess):
    """As a process of `multiprocessing.get_context("forkserver")`, but `start` does not wait for the fork.

    Cost: `start` takes about a millisecond, and the fork some ten milliseconds of the server's time.
    """

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # a hook of the standard library
        return _Popen(process_obj)
