"""Training steps over simulated exchanges, against sums done by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.collective import build, topology
from tweed.errors import UsageError
from tweed.simulate import models, workload
from tweed.simulate.workload import Layer, Workload

SMALL = Workload("small", (Layer("a", 100, 1.0), Layer("b", 200, 2.0), Layer("c", 300, 3.0)), 4.0, "made up")


def exchange(numbytes: int) -> float:
    return numbytes / 100


def test_without_overlap_all_exchanges_come_after_the_backward_pass() -> None:
    assert workload.step(SMALL, exchange, overlap=False) == (16.0, 10.0, 6.0, 6.0)


def test_with_overlap_only_what_is_left_at_the_end_is_waited_for() -> None:
    # The last layer is there at 7 and takes until 10, the middle one until 12, the first until 13.
    assert workload.step(SMALL, exchange, overlap=True) == (13.0, 10.0, 6.0, 3.0)


def test_buckets_fill_from_the_last_layer_on() -> None:
    bucketed = SMALL.bucketed(400)
    assert bucketed.layers == (Layer("a", 100, 1.0), Layer("b to c", 500, 5.0))
    assert SMALL.bucketed(10**6).layers == (Layer("a to c", 600, 6.0),)
    assert (bucketed.numbytes, bucketed.compute_s) == (SMALL.numbytes, SMALL.compute_s)


times = st.floats(0, 10)
layers = st.builds(Layer, st.just("layer"), st.integers(0, 1000), times)


@given(st.lists(layers, min_size=1, max_size=9).map(tuple), times, st.integers(1, 3000))
def test_overlap_never_takes_longer_and_never_hides_arithmetic(
    rows: tuple[Layer, ...], forward_s: float, bucket: int
) -> None:
    load = Workload("any", rows, forward_s, "")
    for each in (load, load.bucketed(bucket)):
        plain, hidden = (workload.step(each, exchange, overlap=overlap) for overlap in (False, True))
        assert hidden.seconds <= plain.seconds + 1e-9
        assert hidden.seconds >= max(hidden.compute_s, hidden.exchange_s)
        assert hidden.waiting_s >= 0


MILLIONS = {"AlexNet": 61.1, "ResNet-50": 25.5, "Transformer": 61.3, "NCF": 6.61}


@pytest.mark.parametrize("name", models.MODELS)
def test_models_have_the_weights_that_are_published(name: str) -> None:
    load = models.MODELS[name]()
    assert load.numbytes / 4e6 == pytest.approx(MILLIONS[name], rel=2e-3)
    assert load.source
    assert load.forward_s < load.compute_s < 4 * load.forward_s


def test_a_product_takes_a_tile_after_the_other() -> None:
    chip = models.Accelerator(arrays=2, side=4, hertz=1.0)
    assert chip.seconds(8, 10, 8) == 2 * (10 + 3 * 4 - 2)
    assert chip.seconds(1, 10, 1) == 20


def test_a_timer_simulates() -> None:
    network = topology.torus(4, 4)
    schedule = build("all_reduce", "multitree", network)
    seconds = workload.timer(schedule, network)
    assert seconds(1 << 20) > seconds(1 << 10) > 0
    with pytest.raises(UsageError, match="not every rank has a result"):
        workload.timer(schedule, network, deaths={0: 0.0})(1 << 20)
