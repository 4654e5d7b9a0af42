"""Messages over a stream: whole, in order, and without a wait at the launcher's end."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.workloads.tasks import channel
from tweed.workloads.tasks.channel import Channel


def received(end: Channel) -> Iterator[bytes]:
    """What comes before the stream ends."""
    try:
        for message in end.receive():
            yield bytes(message)
    except EOFError:
        return


@given(st.lists(st.lists(st.binary(max_size=9), max_size=3), max_size=8))
def test_messages_come_in_order(messages: list[list[bytes]]) -> None:
    left, right = map(Channel, socket.socketpair())
    for parts in messages:
        left.send(*parts)
    left.close()
    assert [*received(right)] == [b"".join(parts) for parts in messages]
    right.close()


def test_what_nobody_takes_is_kept_and_nobody_waits() -> None:
    left, right = map(Channel, socket.socketpair())
    big, got = bytes(range(256)) * (1 << 14), list[bytes]()
    for _ in range(3):
        left.send(b"head", big)
    assert left.is_sending
    while len(got) < 3:
        got += received(right)
        left.flush()
    assert not left.is_sending and got == [b"head" + big] * 3
    left.close()
    right.close()


def test_the_end_of_a_stream_comes_after_its_messages() -> None:
    left, right = map(Channel, socket.socketpair())
    left.send(b"last")
    left.close()
    got = right.receive()
    assert next(got) == b"last"
    with pytest.raises(EOFError):
        next(got)
    right.send(bytes(1 << 22))  # to nobody: it is dropped
    assert not right.is_sending
    right.close()


def test_a_worker_waits_for_whole_messages() -> None:
    ours, theirs = socket.socketpair()
    launcher = Channel(ours)
    with theirs:
        launcher.send(b"one", b" two")
        launcher.send()
        assert channel.receive(theirs) == b"one two" and channel.receive(theirs) == b""
        channel.send(theirs, b"an", b"swer")
        assert [*received(launcher)] == [b"answer"]
        launcher.close()
        with pytest.raises(EOFError):
            channel.receive(theirs)
