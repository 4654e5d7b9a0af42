"""One message to many hosts of a network by UDP multicast, without a promise that it arrives.

    sender.send(number, data)           once on the sender's link, once on the link of each receiver
    receiver.receive(until)             the next message that is complete; None: none was by then

Who misses one asks for it over a link of its own. Datagrams are neither sealed nor signed: take them in
networks whose hosts may read what is sent, and compare a message with a digest that came over a sealed link.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

from tweed.errors import DataError

#: The message's number, the fragment's place, how many there are.
_HEAD = struct.Struct("<QII")
#: Of a fragment: with all heads less than an Ethernet packet.
_FRAGMENT_BYTES = 1400
_MOST_FRAGMENTS = 1 << 16
#: What waits to leave is less than the queue of a link, so that `send` waits and nothing is dropped here.
_WAITING_BYTES = 16 << 10


def fragments(number: int, data: bytes) -> Iterator[bytes]:
    """A message as datagrams. Raises: DataError for one that is empty, or longer than 90 MB."""
    count = -(-len(data) // _FRAGMENT_BYTES)
    if not 0 < count <= _MOST_FRAGMENTS:
        raise DataError(f"a message of {len(data)} bytes cannot be sent by multicast")
    for place in range(count):
        begin = place * _FRAGMENT_BYTES
        yield _HEAD.pack(number, place, count) + data[begin : begin + _FRAGMENT_BYTES]


class Assembly:
    """Puts the newest message together from its datagrams, in any order. Pure.

    Example:
      >>> assembly = Assembly()
      >>> one, other = fragments(7, b"x" * 2000)
      >>> assembly.handle(other), len(assembly.handle(one))
      (None, 2000)
    """

    def __init__(self) -> None:
        self._number = -1
        self._parts: list[bytes | None] = []

    def handle(self, datagram: bytes) -> bytes | None:
        """Takes a datagram; what is none, or of an older message, is passed over.

        Returns: the message, when it is complete.
        """
        if len(datagram) < _HEAD.size:
            return None
        number, place, count = _HEAD.unpack_from(datagram)
        if number < self._number or not 0 <= place < count <= _MOST_FRAGMENTS:
            return None
        if number > self._number or count != len(self._parts):
            self._number, self._parts = number, [None] * count
        was_there = self._parts[place] is not None
        self._parts[place] = datagram[_HEAD.size :]
        if was_there or None in self._parts:
            return None
        return b"".join(part for part in self._parts if part is not None)


class MulticastSender:
    """Sends to a group.

    Args:
      group: an IPv4 multicast address and a port, such as ("239.7.7.1", 7071).
      host: this host's address in the network.

    Cost: a datagram per 1,400 bytes, whatever the number of receivers.
    """

    def __init__(self, group: tuple[str, int], host: str) -> None:
        self._group = group
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _WAITING_BYTES)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(host))

    def send(self, number: int, data: bytes) -> None:
        """Sends a message; numbers grow."""
        for datagram in fragments(number, data):
            self._socket.sendto(datagram, self._group)

    def close(self) -> None:
        """Closes the socket of this end."""
        self._socket.close()


class MulticastReceiver:
    """Receives what is sent to a group. Args: see `MulticastSender`."""

    def __init__(self, group: tuple[str, int], host: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._socket.bind(group)
        member = socket.inet_aton(group[0]) + socket.inet_aton(host)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        self._assembly = Assembly()

    def receive(self, until: float) -> bytes | None:
        """The next complete message; None: it is `until` by `time.monotonic()`, and none is there."""
        while True:
            self._socket.settimeout(max(until - time.monotonic(), 1e-4))
            try:
                datagram = self._socket.recv(1 << 16)
            except TimeoutError:
                return None
            if (message := self._assembly.handle(datagram)) is not None:
                return message

    def close(self) -> None:
        """Closes the socket of this end."""
        self._socket.close()
