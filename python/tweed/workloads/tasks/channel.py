"""Messages over a stream socket, each after its length in eight bytes.

The launcher never waits for one worker, which may be stopped: its `Channel` sends what the socket takes, and
keeps the rest. A worker has nothing else to do, and waits in `send` and `receive`.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Iterator

Part = bytes | bytearray | memoryview

_LENGTH = struct.Struct("<Q")
_READ_BYTES = 1 << 20


class Channel:
    """The launcher's end. Nothing in it waits.

    Attributes:
      socket: is closed by `close`.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.socket = end
        self._outgoing: deque[memoryview] = deque()
        self._incoming = bytearray()

    @property
    def is_sending(self) -> bool:
        """Whether something is left for `flush` when the socket takes more."""
        return bool(self._outgoing)

    def send(self, *parts: Part) -> None:
        """Sends a message that consists of these parts, which are not to be changed; nothing is copied."""
        self._outgoing.append(memoryview(_LENGTH.pack(sum(len(part) for part in parts))))
        self._outgoing.extend(memoryview(part) for part in parts if len(part))
        self.flush()

    def flush(self) -> None:
        """Sends what the socket takes. What a worker that has ended was to get is dropped."""
        try:
            while self._outgoing:
                sent = self.socket.send(self._outgoing[0])
                rest = self._outgoing.popleft()[sent:]
                if rest:
                    self._outgoing.appendleft(rest)
        except BlockingIOError:
            return
        except OSError:
            self._outgoing.clear()

    def receive(self) -> Iterator[bytearray]:
        """The messages that are there in whole.

        Raises: EOFError at the end of the stream, when all messages before it were given.
        """
        ended = self._read()
        while len(self._incoming) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._incoming)[0]
            if len(self._incoming) < end:
                break
            yield self._incoming[_LENGTH.size : end]
            del self._incoming[:end]
        if ended:
            raise EOFError

    def _read(self) -> bool:
        """Takes what the socket has. Whether its stream has ended."""
        try:
            while data := self.socket.recv(_READ_BYTES):
                self._incoming += data
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        """Closes the socket: a worker that waits for a message ends then."""
        self.socket.close()


def send(end: socket.socket, *parts: Part) -> None:
    """Sends a message that consists of these parts. Raises OSError if the other end is gone."""
    end.sendall(_LENGTH.pack(sum(len(part) for part in parts)))
    for part in parts:
        end.sendall(part)


def receive(end: socket.socket) -> bytearray:
    """The next message. Raises EOFError if the other end is gone."""
    return _exactly(end, _LENGTH.unpack(_exactly(end, _LENGTH.size))[0])


def _exactly(end: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view, at = memoryview(data), 0
    while at < count:
        read = end.recv_into(view[at:])
        if read == 0:
            raise EOFError
        at += read
    return data
