"""Orders for one's own tensors: what each keeps to, whatever the gradients and the link are."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.errors import UsageError
from tweed.order import (
    AllOffered,
    Burst,
    ByLayer,
    Credit,
    Ended,
    FirstIn,
    Listed,
    Offered,
    Piece,
    Prophet,
    Send,
    Transfer,
    Withdrawn,
    bursts,
    pieces,
)
from tweed.order.step import Gradient, Iteration, Wire, iterate, planned

PIECE = 100
#: Gradients by layer: bytes, and the seconds since that of the next layer; those of a burst come together.
layers = st.lists(
    st.tuples(st.integers(0, 900), st.sampled_from([0.0, 0.0, 0.5, 3.0, 20.0])), min_size=1, max_size=12
)
wires = st.builds(Wire, st.sampled_from([30.0, 100.0, 1000.0]), st.sampled_from([0.0, 0.3]), st.floats(0, 2))
windows = st.integers(1, 1000)


def profile_of(drawn: list[tuple[int, float]]) -> tuple[Gradient, ...]:
    now, found = 0.0, []
    for numbytes, gap_s in reversed(drawn):
        now += gap_s
        found.append(Gradient(numbytes, now, 1.0))
    return tuple(reversed(found))


def prophet(profile: tuple[Gradient, ...], wire: Wire, window_bytes: int = 10**9) -> Prophet:
    return Prophet(bursts([layer.ready_s for layer in profile]), wire.message_s, window_bytes)


def sizes(profile: tuple[Gradient, ...]) -> dict[Any, int]:
    return {
        one.key: one.numbytes
        for layer, gradient in enumerate(profile)
        for one in pieces(layer, gradient.numbytes, most_bytes=PIECE)
    }


def run(order: Any, profile: tuple[Gradient, ...], wire: Wire) -> Iteration:
    return iterate(order, profile, wire, piece_bytes=PIECE)


@given(layers, wires, windows)
def test_every_byte_is_sent_once_and_no_piece_overtakes_within_its_tensor(
    drawn: Any, wire: Wire, window: int
) -> None:
    profile = profile_of(drawn)
    orders = (FirstIn(3), ByLayer(2), Credit(window), prophet(profile, wire, window))
    for order in (*orders, Listed(planned(orders[2], profile, wire, piece_bytes=PIECE) or ("none",), window)):
        sent = [one.key for one in run(order, profile, wire).crossings]
        assert sorted(sent) == sorted(sizes(profile))
        for layer in range(len(profile)):
            places = [key.place for key in sent if key.layer == layer]
            assert places == sorted(places)


@given(layers, wires, windows)
def test_no_more_is_under_way_than_the_window_holds(drawn: Any, wire: Wire, window: int) -> None:
    profile = profile_of(drawn)
    numbytes = sizes(profile)
    for order in (Credit(window), prophet(profile, wire, window)):
        state = order.start()
        under_way: list[Piece] = []
        for layer in reversed(range(len(profile))):
            for piece in pieces(layer, profile[layer].numbytes, most_bytes=PIECE):
                state = order.handle(Offered(piece), state, 0.0)
            while (found := order.poll(state, 0.0))[0] is not None:
                assert isinstance(found[0], Send) and isinstance(found[0].key, Piece)
                under_way.append(found[0].key)
                assert len(under_way) == 1 or sum(numbytes[key] for key in under_way) <= window
            if under_way:
                state = order.handle(Ended(under_way.pop(0)), state, 0.0)


@given(layers, wires)
def test_blocks_of_prophet_have_left_when_the_next_burst_begins(drawn: Any, wire: Wire) -> None:
    profile = profile_of(drawn)
    order = prophet(profile, wire)
    edges = [len(profile), *(burst.lowest for burst in order.bursts)]
    starts_s = [profile[edge - 1].ready_s for edge in edges[:-1]]
    for one in run(order, profile, wire).crossings:
        # The last burst begins no later than the backward pass ends, and after it nothing is held back.
        assert not any(one.begin_s < start_s - 1e-6 and one.end_s > start_s + 1e-6 for start_s in starts_s)


@given(layers, wires)
def test_after_the_last_burst_all_goes_by_layer(drawn: Any, wire: Wire) -> None:
    profile = profile_of(drawn)
    for order in (ByLayer(), prophet(profile, wire, 1)):  # what was let go before may still wait for the link
        late = [one.key for one in run(order, profile, wire).crossings if one.begin_s > profile[0].ready_s]
        assert late == sorted(late)


@given(layers, wires, windows)
def test_a_list_is_kept_by_ranks_whose_gradients_come_at_other_times(
    drawn: Any, wire: Wire, window: int
) -> None:
    mine = profile_of(drawn)
    keys = planned(prophet(mine, wire), mine, wire, piece_bytes=PIECE)
    others = profile_of([(numbytes, 7.0 - gap_s / 3) for numbytes, gap_s in drawn])
    if keys:
        assert planned(Listed(keys, window), others, wire, piece_bytes=PIECE) == keys


#: ResNet-50's gradients in Prophet's code: the last layers of bursts, and the ms from each to the next one in
#: the order in which they come.
LAST = (9, 22, 35, 50, 62, 77, 90, 103, 117, 130, 143, 156)
GAPS_MS = (16, 15, 9, 10, 12, 18, 15, 21, 30, 25, 20)


@given(st.lists(st.floats(0, 0.05), min_size=157, max_size=157))
def test_the_bursts_of_resnet50_are_recognised_through_jitter(jitter_ms: list[float]) -> None:
    now_ms, profile_s = 0.0, []
    gaps = dict(zip(reversed(LAST[:-1]), GAPS_MS, strict=True))
    for layer in reversed(range(157)):
        now_ms += gaps.get(layer, 0.0) + jitter_ms[layer]
        profile_s.append(now_ms / 1000)
    found = bursts(profile_s[::-1])
    assert [burst.lowest - 1 for burst in found] == [*reversed(LAST[:-1]), -1]
    assert found[0].gap_s == pytest.approx(0.016, abs=0.002) and found[-1].gap_s == math.inf


def test_gradients_that_come_evenly_are_one_burst() -> None:
    assert bursts([3.0, 2.0, 1.0, 0.0]) == (Burst(0, math.inf),)


@pytest.mark.parametrize("profile_s", [[], [0.0, 1.0]])
def test_a_profile_that_no_backward_pass_has_is_refused(profile_s: list[float]) -> None:
    with pytest.raises(UsageError, match="profile"):
        bursts(profile_s)


def test_what_is_held_back_goes_when_the_backward_pass_ends_without_the_last_burst() -> None:
    order = Prophet((Burst(1, 1.0), Burst(0, math.inf)))
    state = order.start()
    for step in range(2):  # in which nothing uses layer 0
        state = order.handle(Offered(Transfer(step, 9, layer=1)), state, 10.0 * step)
        assert order.poll(state, 10.0 * step)[0] is None
        state = order.handle(AllOffered(), state, 10.0 * step + 5)
        assert order.poll(state, 10.0 * step + 5)[0] == Send(step)
        state = order.handle(Ended(step), state, 10.0 * step + 6)


def test_a_list_goes_on_without_what_was_withdrawn_and_begins_anew() -> None:
    order = Listed(("a", "b", "c"))
    state = order.start()
    for _ in range(2):
        for key in "cba":
            state = order.handle(Offered(Transfer(key, 1)), state, 0.0)
        state = order.handle(Withdrawn("b"), state, 0.0)
        assert [order.poll(state, 0.0)[0] for _ in range(3)] == [Send("a"), Send("c"), None]
        for key in "ac":
            state = order.handle(Ended(key), state, 0.0)


def test_what_is_in_no_list_is_refused() -> None:
    order = Listed(("a",))
    with pytest.raises(UsageError, match="'b' is not in the list"):
        order.handle(Offered(Transfer("b", 1)), order.start(), 0.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Listed(()),
        lambda: Listed(("a", "a")),
        lambda: Prophet(()),
        lambda: Prophet((Burst(1, 1.0),)),
        lambda: Prophet((Burst(0, 1.0), Burst(0, 1.0))),
        lambda: Prophet((Burst(0, 1.0),), window_bytes=0),
        lambda: list(pieces(0, 5, most_bytes=0)),
    ],
)
def test_what_cannot_be_is_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()
