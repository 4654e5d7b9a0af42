"""Choosing the quickest choice: over simulated links, with noise, with a link that changes."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, field

import pytest
import torch

from tests.compress.group import Group
from tweed.compress import Auto, Half, Quantise, RandomK, Spec, TopK
from tweed.compress.autotuner import Autotuner, Phase, Reason, Record, Timing, wire_bytes
from tweed.errors import StrategyError

#: Bytes on the wire and seconds of work per exchange: everything, half of it, 8 bits, 4 bits, 1 %.
WAYS = ((6e6, 0.0), (3e6, 0.0004), (1.6e6, 0.0012), (0.8e6, 0.0014), (0.1e6, 0.0025))
BITS = [10.0**power for power in (6, 7, 7.5, 8, 8.5, 9, 9.5, 10, 10.5, 11)]
READY_S = [0.0, 0.001, 0.01, 0.1]
EXCHANGES = 1000


@dataclass
class World:
    """A link and a machine: what an exchange takes, by choice."""

    bits: float
    ready_s: float = 0.01
    noise: random.Random = field(default_factory=lambda: random.Random(0))
    spread: float = 0.0

    def timing(self, choice: int) -> Timing:
        wire_bytes, work_s = WAYS[choice]
        waiting_s = 0.0002 + 8 * wire_bytes / self.bits
        if choice == 0:  # the first half crosses during the backward pass
            waiting_s = max(waiting_s / 2, waiting_s - self.ready_s)
        scale = 1 + self.spread * abs(self.noise.gauss(0, 1))
        return Timing((self.ready_s + work_s + waiting_s) * scale, waiting_s * scale, self.ready_s * scale)


def autotuner(**settings: float) -> Autotuner:
    return Autotuner(tuple(wire_bytes for wire_bytes, _ in WAYS), **settings)  # type: ignore[arg-type]


def driven(
    rules: Autotuner, world: World, exchanges: int, record: Record | None = None
) -> tuple[float, list[Record]]:
    """Seconds of so many exchanges, and all records on the choice."""
    records, total = [record or rules.start()], 0.0
    while exchanges > 0:
        timings = [
            world.timing(records[-1].phase.choice) for _ in range(min(exchanges, records[-1].phase.exchanges))
        ]
        total += sum(timing.seconds for timing in timings)
        exchanges -= len(timings)
        records.append(rules.next(records[-1], timings))
    return total, records


@pytest.mark.parametrize(("bits", "ready_s"), [*itertools.product(BITS, READY_S)])
@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_no_link_takes_much_more_than_its_best_fixed_way(bits: float, ready_s: float, spread: float) -> None:
    seed = round(math.log10(bits) * 1000 + ready_s * 100)
    took, _ = driven(autotuner(), World(bits, ready_s, random.Random(seed), spread), EXCHANGES)
    fixed = []
    for choice in range(len(WAYS)):
        world = World(bits, ready_s, random.Random(seed), spread)
        fixed.append(sum(world.timing(choice).seconds for _ in range(EXCHANGES)))
    assert took <= 1.1 * min(fixed), (
        f"seed {seed}: {took / min(fixed):.3f} of the best, choice {fixed.index(min(fixed))}"
    )


def test_a_slow_link_never_carries_everything() -> None:
    _, records = driven(autotuner(), World(1e7), 100)
    tried = {record.phase.choice for record in records}
    assert 0 not in tried and 1 not in tried
    assert records[-1].phase == Phase(4, 250, Reason.QUICKEST)


def test_a_fast_link_turns_compression_off() -> None:
    _, records = driven(autotuner(), World(1e11), 100)
    assert records[-1].phase == Phase(0, 250, Reason.DOES_NOT_PAY)


def test_what_is_kept_stays_under_noise() -> None:
    _, records = driven(autotuner(), World(1e8, 0.01, random.Random(1), 0.15), 5000)
    kept = [record.phase.choice for record in records if record.phase.reason is not Reason.TRIED]
    assert len(set(kept)) == 1


def test_a_link_that_changed_is_tried_anew() -> None:
    rules = autotuner()
    _, slow = driven(rules, World(1e7), 500)
    _, fast = driven(rules, World(1e11), 1000, slow[-1])
    assert (slow[-1].phase.choice, fast[-1].phase.choice) == (4, 0)
    _, again = driven(rules, World(1e7), 1000, fast[-1])
    assert again[-1].phase.choice == 4


def test_a_gain_of_little_is_not_worth_the_loss() -> None:
    rules = Autotuner((100.0, 50.0))
    record = rules.next(rules.start(), [Timing(0.97, 0.5)] * 4)
    assert record.phase == Phase(0, 4)
    record = rules.next(record, [Timing(1.0, 0.6)] * 4)
    assert record.phase.choice == 0 and record.phase.reason is Reason.DOES_NOT_PAY


@pytest.mark.parametrize("bits", BITS)
def test_the_gain_and_where_it_ends_are_those_of_the_world(bits: float) -> None:
    rules, here = autotuner(), World(bits, ready_s=0.0)
    _, records = driven(rules, here, 200)
    gain, choice = rules.gain(records[-1]), records[-1].phase.choice
    assert gain is not None
    assert gain.times == pytest.approx(here.timing(0).seconds / here.timing(choice).seconds, rel=0.05)
    if choice:
        assert gain.break_even_bits == pytest.approx(
            8 * (WAYS[0][0] - WAYS[choice][0]) / WAYS[choice][1], rel=0.01
        )
        assert gain.break_even_bits > bits
    else:
        assert gain.break_even_bits < 2 * bits


def test_no_gain_is_known_while_candidates_are_tried() -> None:
    assert autotuner().gain(autotuner().start()) is None


def test_the_first_exchange_of_a_trial_does_not_count() -> None:
    rules = Autotuner((100.0, 50.0))
    record = rules.next(rules.start(), [Timing(50.0, 0.0), *[Timing(1.0, 0.5)] * 3])
    assert record.seen[1].seconds == 1.0


SPEC = Spec(((1000,),))


def test_the_total_sent_and_residual_is_the_total_given_whatever_the_way() -> None:
    choices = (Half(), Quantise(8, nearest=True, bidirectional=False), TopK(0.1), TopK(0.01))
    memory, chance = Auto(choices), torch.Generator().manual_seed(0)
    together = Group(memory, SPEC, 3)
    given, sent = torch.zeros(1000), torch.zeros(1000)
    for choice in (4, 3, 1, 0, 2, 4, 0):
        values = [torch.randn(1000, generator=chance) for _ in range(3)]
        given += sum(values) / 3
        for buffer in together.buffers:
            buffer.state.choice = choice
        sent += together.exchange(values)[0].delta
    torch.testing.assert_close(sent, given, rtol=0, atol=0.01)  # sums of 16 bits
    assert all(not buffer.state.error.any() for buffer in together.buffers)


def test_a_candidate_whose_rest_would_grow_is_refused() -> None:
    with pytest.raises(StrategyError, match="auto does not go with RandomK"):
        Auto((RandomK(0.01, scaled=True),))


def test_bytes_on_the_wire_follow_from_the_way_packets_go() -> None:
    for codec, packets in ((Half(), 1.5), (Quantise(bits=8, nearest=True), 1.5), (TopK(0.01), 0.75 * 5)):
        assert wire_bytes(codec, SPEC, 4) == packets * codec.packet_bytes(SPEC)
    assert wire_bytes(TopK(0.9), SPEC, 4) == 0.75 * (TopK(0.9).packet_bytes(SPEC) + 4000)


def test_ways_go_from_many_bytes_to_few() -> None:
    autotuner = Auto().autotuner([Spec(((100_000, 10),)), Spec(((10_000,),))], 4)
    assert list(autotuner.wire_bytes) == sorted(autotuner.wire_bytes, reverse=True)
