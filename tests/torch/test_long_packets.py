"""Whether full packets cross. Where they do not: `tests/faults/settings.py`, "an MTU that is too small"."""

from __future__ import annotations

import socket

from tweed.torch import long_packets


def test_they_cross_to_one_who_reads_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert long_packets.cross(f"127.0.0.1:{listener.getsockname()[1]}", 60.0)


def test_where_nobody_can_be_called_nothing_is_known_of_them() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    assert long_packets.cross(address, 0.2)
