"""Messages to many hosts at once."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.errors import DataError
from tweed.exchange.multicast import Assembly, MulticastReceiver, MulticastSender, fragments


@given(data=st.binary(min_size=1, max_size=9000), order=st.randoms(use_true_random=False))
def test_a_message_is_whole_in_any_order_and_with_copies(data: bytes, order: object) -> None:
    parts = [*fragments(3, data)] * 2
    order.shuffle(parts)  # type: ignore[attr-defined]
    assembly = Assembly()
    found = [whole for part in parts if (whole := assembly.handle(part)) is not None]
    assert found == [data]


def test_a_message_with_a_gap_never_comes_and_older_ones_are_passed_over() -> None:
    assembly = Assembly()
    first, *others = fragments(1, b"a" * 5000)
    assert [assembly.handle(part) for part in others] == [None] * 3
    assert assembly.handle(next(fragments(2, b"b"))) == b"b"
    assert assembly.handle(first) is None and assembly.handle(next(fragments(1, b"c"))) is None


@given(st.binary(max_size=40))
def test_any_bytes_do_no_harm(data: bytes) -> None:
    Assembly().handle(data)


def test_what_cannot_be_sent_is_refused() -> None:
    with pytest.raises(DataError, match="0 bytes"):
        [*fragments(1, b"")]


def test_it_goes_over_loopback() -> None:
    group = ("239.7.7.9", 17171)
    receivers = [MulticastReceiver(group, "127.0.0.1") for _ in range(2)]
    sender = MulticastSender(group, "127.0.0.1")
    sender.send(1, b"x" * 4000)
    for receiver in receivers:
        assert receiver.receive(time.monotonic() + 10) == b"x" * 4000
        assert receiver.receive(time.monotonic()) is None
    for one in (sender, *receivers):
        one.close()
