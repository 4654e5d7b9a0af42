"""The socket through which `tweed top` looks at a run of the same user on the same host.

Rank 0 listens on a Unix socket in a folder that only its user can enter. Who connects gets the last two
matrices at once and then each new one, a line of JSON each. A socket whose process was killed refuses
connections: whoever looks for runs removes it.
"""

from __future__ import annotations

import os
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tweed.errors import UsageError
from tweed.metrics.snapshot import Matrix

_SUFFIX = ".sock"
_PATIENCE_S = 0.2  # a client that takes a line no faster is dropped: it must not hold up the others


class Listener:
    """Rank 0's end. A selector can wait for it: then `admit` lets clients in.

    Args:
      name: the socket is called so; no other run of this user may have the name.

    Raises:
      UsageError: no folder can be made in which others cannot reach the socket.
    """

    def __init__(self, name: str) -> None:
        self.path = _own_folder() / (name + _SUFFIX)
        self._server = socket.socket(socket.AF_UNIX)
        # It gets its name once it listens: a socket that refuses connections is taken for a dead run's.
        unborn = self.path.with_suffix(".new")
        try:
            unborn.unlink(missing_ok=True)
            self._server.bind(str(unborn))
            self._server.listen()
            unborn.rename(self.path)
        except OSError as error:
            raise UsageError(f"cannot open {self.path} for `tweed top`: {error}") from error
        self._server.setblocking(False)
        self._clients: list[socket.socket] = []
        self._lines: list[bytes] = []

    def fileno(self) -> int:
        """The listening socket, for a selector."""
        return self._server.fileno()

    def admit(self) -> None:
        """Lets in those who wait to connect."""
        with suppress(BlockingIOError):
            while True:
                client, _ = self._server.accept()
                client.settimeout(_PATIENCE_S)
                self._send([client], b"".join(self._lines))

    def show(self, matrix: Matrix) -> None:
        """Sends a matrix to all clients."""
        line = matrix.to_json().encode() + b"\n"
        self._lines = [*self._lines[-1:], line]
        clients, self._clients = self._clients, []
        self._send(clients, line)

    def _send(self, clients: list[socket.socket], data: bytes) -> None:
        for client in clients:
            try:
                client.sendall(data)
            except OSError:
                client.close()
            else:
                self._clients.append(client)

    def close(self) -> None:
        """Removes the socket; clients see the end."""
        self.path.unlink(missing_ok=True)
        self.disown()

    def disown(self) -> None:
        """In a fork: lets go of the sockets, which are the parent's."""
        for each in (self._server, *self._clients):
            each.close()


class Watcher:
    """The end of `tweed top`. A context manager.

    Raises:
      ConnectionRefusedError, FileNotFoundError: nobody listens at `path` any more.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._rest = b""

    def next(self, timeout_s: float) -> Matrix | None:
        """The next matrix, or None if none came within `timeout_s`.

        Raises: EOFError when the run has ended.
        """
        end = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            self._socket.settimeout(max(0.001, end - time.monotonic()))
            try:
                data = self._socket.recv(1 << 20)
            except TimeoutError:
                return None
            except ConnectionResetError:
                data = b""
            if not data:
                raise EOFError
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return Matrix.from_json(line)

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def watchers() -> Iterator[Watcher]:
    """Connects to every run of this user on this host. Removes sockets that nobody listens on any more."""
    paths = (path for folder in _folders() if _is_own(folder) for path in sorted(folder.glob("*" + _SUFFIX)))
    for path in paths:
        try:
            yield Watcher(path)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except FileNotFoundError:
            pass  # it has ended meanwhile


def _own_folder() -> Path:
    """The first folder that is or can be made ours alone."""
    for folder in _folders():
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            if _is_own(folder):
                return folder
    tried = ", ".join(map(str, _folders()))
    raise UsageError(f"`tweed top` needs a folder that is yours alone, and none of these can be: {tried}")


def _is_own(folder: Path) -> bool:
    """Nobody else can enter or has made it, by a link or otherwise."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _folders() -> list[Path]:
    """Where sockets may be, the best place first. A run and who looks at it may differ in environment."""
    uid = _uid()
    rooms = dict.fromkeys((os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{uid}"))
    own = [Path(room) / "tweed" for room in rooms if room]
    return [*own, Path(tempfile.gettempdir()) / f"tweed-{uid}"]


def _uid() -> int:
    """The user's number outside of all user namespaces: a rank of a testbed may be in one."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/uid_map").read_text().splitlines():
            inside, outside, count = map(int, line.split())
            if inside <= os.getuid() < inside + count:
                return outside + os.getuid() - inside
    return os.getuid()
