"""Exchange of movements while ranks take further steps: nobody waits, unless an exchange takes too long.

An exchange takes several collectives, each of which needs the one before. The training loop moves it on, at
the end of steps that are the same on all ranks, as all must call collectives in the same order:

    after step 0        it begins: the first collective
    between             the next ones, at equal distances; how many there are the last exchange has told
    after step `delay`  the rest of them, if any; the model moves

Who needs the result earlier waits for it: `finish`, `average`, and a checkpoint, which keeps what is known
but not applied. So all ranks must take a checkpoint after the same step. What is known moves the model after
the same step as without.

`tweed.exchange.fragments` has what becomes of values, `tweed.cadence.turns` whose turn it is.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from tweed.cadence import Cadence, Stop, Turns
from tweed.cadence.turns import UnderWay
from tweed.compress import Memory
from tweed.exchange.autotuner import make_buffers
from tweed.exchange.cadence_driver import CadenceDriver
from tweed.exchange.communicator import Communicator
from tweed.exchange.compressed_buffers import CompressedBuffers
from tweed.exchange.finite import FiniteFlags, OwnFlags
from tweed.exchange.flagged import exchange_if_finite
from tweed.exchange.fragments import Fragment, cut
from tweed.exchange.model_averaging import BetweenSteps
from tweed.exchange.pending import Pending
from tweed.exchange.untrained import Untrained
from tweed.exchange.verdicts import Verdict, check_verdicts

log = logging.getLogger("tweed")

#: Pauses of an exchange, before the first has ended: to the owners, and back.
_PAUSES = 2


@dataclass(slots=True)
class _Progress:
    """How far an exchange has come: how often it has paused."""

    pending: Pending[None]
    passed: int = 0


class OverlappedExchange(BetweenSteps):
    """See the module.

    Args:
      params: those that are trained, by name: always as many, of the same shapes.
      rest: of the model. It is averaged once per round, which ranks wait for.
      comm: the group.
      cadence: when to exchange.
      bucket_bytes: size of a full bucket.
      memory: the strategy's, which `overlaps`.
      rounds: the strategy's cadence, of which fragments, delay and outer optimizer count.

    Cost: memory for three models in float32, beside what memory and outer optimizer keep.
    """

    def __init__(
        self,
        params: Mapping[str, Tensor],
        rest: Untrained,
        comm: Communicator,
        cadence: CadenceDriver,
        bucket_bytes: int,
        memory: Memory[Any],
        rounds: Cadence[Any],
    ) -> None:
        super().__init__(rest, comm, cadence, replicas_diverge=True)
        self._params = params
        self._turns = Turns(rounds.fragments, rounds.delay)
        self._fragments: list[Fragment] = []
        self._buffers: list[CompressedBuffers] = []
        slot = 0
        for slices in cut({name: param.shape for name, param in params.items()}, rounds.fragments):
            fragment = Fragment(params, slices, bucket_bytes, memory, rounds.outer)
            self._fragments.append(fragment)
            self._buffers.append(make_buffers(memory, fragment.groups(), comm, slot))
            slot += len(fragment.names)
        self._exchanges: dict[int, _Progress] = {}  # of fragments whose update is not known yet
        self._pauses = _PAUSES  # of an exchange: the last one's, which are as many on all ranks

    def after_step(self, norm: float | None) -> None:
        """What is due moves the model; what is under way goes on; perhaps a fragment's exchange begins."""
        self._turns = self._turns.stepped()
        self._move_due()
        for one in self._turns.under_way:
            if one.fragment in self._exchanges:
                self._go_on(one)
        super().after_step(norm)

    def exchange(self) -> None:
        """Begins the exchange of the fragment whose turn it is.

        Raises: NonFinite, on all ranks, if a value of one is not finite, and the aggregate cannot do without
          that rank; UsageError, on all ranks, if the model of one is another one than it was at `attach`. It
          may come from a later step, as ranks hear of each other late. That fragment was not exchanged then,
          and nothing of it is changed.
        """
        number = self._turns.next
        self._turns = self._turns.begun()
        self._exchanges[number] = _Progress(self._exchanged(number))
        self._go_on(self._turns.under_way[-1])
        self._move_due()

    def _exchanged(self, number: int) -> Pending[None]:
        """One exchange of a fragment, from what is sent to how far it is to move."""
        fragment, buffers, own = self._fragments[number], self._buffers[number], self._rest.look()
        device = fragment.values[0].flat.device
        values = [] if own else fragment.take(buffers.buffers)
        given = [[True] * len(names) for names in fragment.names]
        says = Verdict.REFUSED if own else Verdict.GO_ON

        def check(flags: FiniteFlags) -> None:
            check_verdicts(flags.said, self._comm, device, own)

        flags, updates = yield from exchange_if_finite(
            buffers,
            OwnFlags.of(fragment.values, given, says),
            values,
            lambda values: self._cadence.silent,
            check,
            carried=buffers.carry_flags,
        )
        error = flags.error(fragment.names)
        if updates is None:
            assert error is not None  # that is why
            raise error
        if error is not None:
            log.warning("left out of this exchange: %s", flags.words(fragment.names))
        fragment.put(updates, buffers.buffers)
        self._comm.end_exchange()

    def _go_on(self, one: UnderWay, to_the_end: bool = False) -> None:
        """Moves an exchange on as far as it is to be now. If it fails, the fragment is idle again."""
        progress = self._exchanges[one.fragment]
        wanted = 1 + one.steps * self._pauses // max(self._turns.delay, 1)
        try:
            while to_the_end or progress.passed < wanted:
                next(progress.pending)
                progress.passed += 1
        except StopIteration:
            self._pauses = progress.passed
            del self._exchanges[one.fragment]
        except BaseException:
            del self._exchanges[one.fragment]
            self._turns = self._turns.without(one.fragment)
            raise

    def _move_due(self) -> None:
        due = set(self._turns.due)
        for one in [one for one in self._turns.under_way if one.fragment in due]:
            self._move(one)

    def _move(self, one: UnderWay) -> None:
        if one.fragment in self._exchanges:
            self._go_on(one, to_the_end=True)
        self._fragments[one.fragment].move()
        self._turns = self._turns.without(one.fragment)
        if one.fragment == len(self._fragments) - 1:
            self._rest.average()

    def _learn(self) -> None:
        """Waits for what is under way. All ranks must call it after the same step."""
        for one in self._turns.under_way:
            if one.fragment in self._exchanges:
                self._go_on(one, to_the_end=True)

    def finish(self) -> None:
        self._move_all()
        self._cadence.handle(Stop())
        if self._cadence.decide():
            self._turns = Turns(self._turns.fragments, self._turns.delay)
            for _ in self._fragments:
                self.exchange()
            self._move_all()
        self.synchronize()
        self.differs = False

    def _move_all(self) -> None:
        self._learn()
        for one in self._turns.under_way:
            self._move(one)

    @torch.no_grad()
    def average(self, tensors: list[Tensor]) -> list[Tensor]:
        """Waits for what is under way, and counts it, though the model moves by it later."""
        self._learn()
        now = {name: param.detach().clone() for name, param in self._params.items()}
        for fragment in self._fragments:
            fragment.shift(now)
        return super().average([*now.values(), *tensors[len(now) :]])

    @torch.no_grad()
    def synchronize(self) -> None:
        """All ranks' models become the common reference point, moved by the mean of what a loop has moved by
        hand since the last exchange. Nothing is under way."""
        both = zip(self._fragments, self._buffers, strict=True)
        moved = [fragment.moved_by_hand(buffers.buffers) for fragment, buffers in both]
        flats = [flat for of_fragment in moved for flat in of_fragment]
        for flat, same in zip(flats, self._rest.compare(flats, flats[0].device), strict=True):
            if not same:
                self._comm.mean(flat)
        for fragment, by in zip(self._fragments, moved, strict=True):
            fragment.move_references(by)
            fragment.join()
        self._rest.average()

    def state(self) -> dict[str, Any]:
        self._learn()
        return {
            "turns": asdict(self._turns),
            "fragments": [fragment.state() for fragment in self._fragments],
            "buffers": [buffers.state() for buffers in self._buffers],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self._learn()
        kept = state["turns"]
        under_way = tuple(UnderWay(**one) for one in kept["under_way"])
        self._turns = Turns(**(kept | {"under_way": under_way}))
        for fragment, of_fragment in zip(self._fragments, state["fragments"], strict=True):
            fragment.load(of_fragment)
        for buffers, of_buffers in zip(self._buffers, state["buffers"], strict=True):
            buffers.load(of_buffers)
