"""A worker's step under an order, against times done by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.errors import UsageError
from tweed.order import BoundedDelay, ByLayer, Credit, CreditTuner, FirstIn, Prophet, bursts
from tweed.order.step import Gradient, Wire, iterate, planned, ring
from tweed.simulate import models
from tweed.simulate.step_order import released
from tweed.simulate.workload import Layer, Workload

WHOLE = 10**12
SMALL = Workload("small", (Layer("a", 100, 1.0), Layer("b", 200, 3.0), Layer("c", 300, 2.0)), 3.0, "made up")


def test_gradients_are_there_after_their_backward_passes_or_with_their_burst() -> None:
    assert released(SMALL) == (Gradient(100, 6.0, 0.5), Gradient(200, 5.0, 1.5), Gradient(300, 2.0, 1.0))
    assert [layer.ready_s for layer in released(SMALL, 400)] == [6.0, 5.0, 5.0]
    assert [layer.ready_s for layer in released(SMALL, 10**6)] == [6.0] * 3


def test_what_was_first_holds_up_what_is_needed_first() -> None:
    """Layer 2 goes up from 2 to 5 and is back at 8, layer 1 at 10, layer 0 at 11."""
    step = iterate(FirstIn(), released(SMALL), Wire(100.0), piece_bytes=WHOLE)
    assert [(one.begin_s, one.end_s) for one in step.crossings] == [(2.0, 5.0), (5.0, 7.0), (7.0, 8.0)]
    assert (step.seconds, step.waiting_s) == (14.0, 5.0)


def test_an_urgent_tensor_waits_for_a_piece_of_another_only() -> None:
    profile = (Gradient(100, 5.0, 0.0), Gradient(1000, 4.0, 0.0))
    whole = iterate(ByLayer(), profile, Wire(100.0), piece_bytes=WHOLE)
    cut = iterate(ByLayer(), profile, Wire(100.0), piece_bytes=100)
    assert [one.key.layer for one in cut.crossings[:3]] == [1, 0, 1]
    assert cut.seconds == 16.0 and whole.seconds > cut.seconds


def test_one_piece_at_a_time_waits_for_each_turn_and_a_window_does_not() -> None:
    profile, wire = (Gradient(1000, 0.0, 0.0),), Wire(100.0, turn_s=2.0)
    alone = iterate(ByLayer(), profile, wire, piece_bytes=100)
    window = iterate(Credit(500), profile, wire, piece_bytes=100)
    assert alone.crossings[-1].end_s == 10 * 1.0 + 9 * 2.0
    assert window.crossings[-1].end_s == 10.0


def test_a_step_without_arithmetic_on_a_link_without_limits_takes_no_time() -> None:
    assert iterate(Credit(), (Gradient(9, 0.0, 0.0),), Wire(1e30)).seconds == pytest.approx(0.0)


layers = st.lists(st.tuples(st.integers(1, 900), st.floats(0.01, 3)), min_size=1, max_size=9)


@given(layers, st.sampled_from([FirstIn(), FirstIn(5), ByLayer(), Credit(300)]))
def test_no_step_is_shorter_than_its_arithmetic_or_its_bytes(drawn: Any, order: Any) -> None:
    load = Workload("any", tuple(Layer("", *one) for one in drawn), 2.0, "")
    step = iterate(order, released(load), Wire(100.0), piece_bytes=100)
    assert step.seconds >= load.compute_s - 1e-9 and step.waiting_s >= -1e-9
    assert step.seconds >= load.numbytes / 100.0


def test_an_order_that_drops_or_waits_for_ever_is_refused() -> None:
    profile = (Gradient(9, 0.0, 0.0), Gradient(9, 0.0, 0.0))
    with pytest.raises(UsageError, match="never sends"):
        iterate(Stuck(), profile, Wire(1.0))
    with pytest.raises(UsageError, match="drops"):
        iterate(BoundedDelay(0), profile, Wire(1.0))


class Stuck(FirstIn):
    def has_room(self, transfer: Any, state: Any, now: float) -> bool:
        return False


def test_a_backward_pass_without_times_is_refused() -> None:
    with pytest.raises(UsageError, match="takes no time"):
        released(Workload("none", (Layer("a", 1, 0.0),), 1.0, ""))


@pytest.mark.parametrize("wire", [(0.0,), (1.0, -1.0), (1.0, 0.0, -1.0)])
def test_a_link_that_cannot_be_is_refused(wire: tuple[float, ...]) -> None:
    with pytest.raises(UsageError):
        Wire(*wire)


@pytest.mark.parametrize(
    ("make", "millions", "tensors"),
    [
        (models.resnet18, 11.690, 62),
        (models.resnet50, 25.557, 161),
        (models.resnet152, 60.193, 467),
        (models.inception_v3, 23.835, 284),
        (models.vgg19, 143.667, 38),
    ],
)
def test_weights_and_tensors_are_those_of_torchvision(make: Any, millions: float, tensors: int) -> None:
    load = make(vectors=True)
    assert load.numbytes / 4e6 == pytest.approx(millions, rel=5e-5)
    assert len(load.layers) == tensors
    assert make().numbytes < load.numbytes < 1.005 * make().numbytes
    assert load.compute_s == pytest.approx(make().compute_s)


def test_what_waits_behind_another_joins_its_message_where_messages_are_joined() -> None:
    profile = (Gradient(100, 0.0, 0.0), Gradient(100, 0.0, 0.0), Gradient(100, 9.0, 0.0))
    wire = Wire(100.0, message_s=0.5, joined=True)
    step = iterate(FirstIn(9), profile, wire, piece_bytes=WHOLE)
    assert [(one.begin_s, one.end_s) for one in step.crossings] == [(0.0, 1.5), (1.5, 2.5), (9.0, 10.5)]
    assert step.seconds == 12.0  # its answer is a message, too
    assert iterate(FirstIn(9), profile, Wire(100.0, 0.5), piece_bytes=WHOLE).crossings[1].end_s == 3.0


def test_a_ring_sends_what_its_rounds_send_and_has_no_answer() -> None:
    wire = ring(Wire(100.0, message_s=0.5, turn_s=2.0), ranks=4)
    step = iterate(FirstIn(), (Gradient(100, 1.0, 0.0),), wire, piece_bytes=WHOLE)
    assert step.crossings[0].end_s == pytest.approx(1.0 + 6 * (0.5 + 0.25))
    assert step.seconds == pytest.approx(step.crossings[0].end_s + 6 * 1.0)
    with pytest.raises(UsageError, match="at least 2"):
        ring(wire, ranks=1)


@pytest.mark.parametrize("make", [models.resnet50, models.vgg19])
@pytest.mark.parametrize("gbit", [1.0, 3.0, 10.0])
def test_on_known_models_no_order_loses_to_whole_tensors_first_in(make: Any, gbit: float) -> None:
    profile, wire = released(make(64), 2**22), Wire(gbit * 125e6, 50e-6, 300e-6)
    first = iterate(FirstIn(10**6), profile, wire, piece_bytes=WHOLE).seconds
    prophet = Prophet(bursts([layer.ready_s for layer in profile]), wire.message_s)
    for order in (Credit(4_000_000), prophet):
        assert iterate(order, profile, wire, piece_bytes=500_000).seconds < first


@pytest.mark.parametrize("measured", [0.8, 1.2])
def test_prophet_loses_little_by_a_rate_that_is_measured_wrongly(measured: float) -> None:
    profile, wire = released(models.resnet50(64), 2**22), Wire(3e9 / 8, 50e-6, 300e-6)
    order = Prophet(bursts([layer.ready_s for layer in profile]), wire.message_s)
    told, true = (
        iterate(order, profile, wire, piece_bytes=500_000, measured=share).seconds
        for share in (measured, 1.0)
    )
    assert told < 1.03 * true


@pytest.mark.parametrize("gbit", [1.0, 10.0])
def test_a_window_is_tuned_within_some_fifteen_trials(gbit: float) -> None:
    profile, wire = released(models.resnet50(64), 2**22), Wire(gbit * 125e6, 50e-6, 300e-6)
    tuner = CreditTuner(steps=1)
    state, tried = tuner.start(), []
    while not tried or tried[-1] != state.setting:
        tried.append(state.setting)
        took = iterate(Credit(tried[-1].window_bytes), profile, wire, piece_bytes=tried[-1].piece_bytes)
        state = tuner.handle(took.seconds, state)
    assert len(tried) <= 16
    assert state.measured_s[state.setting] < state.measured_s[tuner.first]


def test_the_list_of_a_plan_has_each_piece_once() -> None:
    profile, wire = released(models.resnet50(), 2**22), Wire(125e6, 50e-6)
    keys = planned(Credit(), profile, wire)
    assert len(set(keys)) == len(keys) == sum(-(-layer.numbytes // 200_000) for layer in profile)
