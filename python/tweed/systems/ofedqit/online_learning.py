"""Online federated learning: OFedAvg, and OFedQIT with quantised messages and intermittent transmission.

`learn` runs a stream; `choose` finds which p, L, s and b spend a budget of bytes best. The regret of online
gradient descent grows as the square root of the summed squared lengths of the gradients that are used. With N
clients, mean gradient g, variance V of one client's gradient per slot, rounds of L slots, probability p, and
a quantiser that makes squared lengths 1 + w times as large on average, that is per slot

    L |g|² + ((1 + w) (V + L |g|²) / p - L |g|²) / N.

A budget of B bits per value and slot, at c bits per value of a message, gives p = B L / c. So the quantiser
that is best is that with the least (1 + w) c, whatever the rest; and the best round has L = sqrt((1 + w) c V
/ (B N)) / |g| slots. Own derivation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from tweed.cadence import Intermittent, Joined
from tweed.compress import Identity, Levels, Spec, Turn
from tweed.compress.packet import HEADER_BYTES
from tweed.data.streams import Learner, Stream
from tweed.errors import UsageError

#: Levels of the quantiser that are tried.
LEVELS = (1, 3, 7, 15, 31)
#: Values that share a norm.
BLOCKS = (8, 16, 32, 64, 128, 256, 512)
ROUNDS = (1, 2, 3, 5, 10)
#: Rounds that a stream must have at least. A guess: the formula knows of noise alone.
STEPS = 100


@dataclass(frozen=True, slots=True)
class Split:
    """How bytes are spent.

    Attributes:
      probability: with which a client sends at the end of a round.
      every: slots per round.
      levels: of the quantiser; None: values go as they are.
      pieces: into which a message is cut, each with a norm of its own.
    """

    probability: float = 1.0
    every: int = 1
    levels: int | None = None
    pieces: int = 1

    def message_bits(self, numel: int) -> int:
        """The bits of one message, by OFedQIT's formula."""
        if self.levels is None:
            return 32 * numel
        return 32 * self.norms(numel) + numel * (1 + self.levels.bit_length())

    def share(self, numel: int) -> float:
        """The share of OFedAvg's traffic, where every client sends every slot."""
        return self.probability / self.every * self.message_bits(numel) / (32 * numel)

    def within(self, share: float, numel: int) -> Split:
        """This split with the probability that a share of OFedAvg's traffic allows."""
        return replace(self, probability=min(1.0, share / replace(self, probability=1.0).share(numel)))

    def block(self, numel: int) -> int:
        """Values that share a norm: as even as pieces come out."""
        return -(-numel // self.pieces)

    def norms(self, numel: int) -> int:
        """Norms in a message. With blocks of whole values the last pieces may be empty."""
        return -(-numel // self.block(numel))


@dataclass(slots=True)
class Outcome:
    """What came of a stream.

    Attributes:
      losses: mean over clients, per slot, before the sample was learned.
      right: share of clients whose class was right, per slot.
      sent_bytes: by all clients, without headers.
      messages: how many.
      params: `[numel]` at the end.
    """

    losses: list[float] = field(default_factory=list)
    right: list[float] = field(default_factory=list)
    sent_bytes: int = 0
    messages: int = 0
    params: Tensor = field(default_factory=lambda: torch.empty(0))

    def facts(self, split: Split, clients: int) -> dict[str, Any]:
        """As plain values, for notes; traffic beside that of OFedAvg, bytes beside the formula's."""
        slots, last, numel = len(self.right), max(1, len(self.right) // 5), self.params.numel()
        return {
            "slots": slots,
            "accuracy": sum(self.right) / slots,
            "last_accuracy": sum(self.right[-last:]) / last,
            "last_loss": sum(self.losses[-last:]) / last,
            "traffic": self.sent_bytes / (slots * clients * 4 * numel),
            "share": split.share(numel),
            "sent_bytes": self.sent_bytes,
            "formula_bytes": self.messages * split.message_bits(numel) / 8,
        }


#: Makes the server's optimizer of one parameter.
MakeOptimizer = Callable[[list[Tensor]], Optimizer]


def learn(learner: Learner, stream: Stream, split: Split, make: MakeOptimizer, seed: int = 0) -> Outcome:
    """Clients predict, and accumulate gradients; at the end of a round those that are drawn send them.

    Who is not drawn drops them. The server sums, divides by the number of clients, and takes one step. All
    clients then have its model; that broadcast is not counted, as in the paper.
    """
    server = _Server(learner, split, make, stream.y.shape[1], seed)
    outcome = Outcome()
    for first in range(0, len(stream.y), split.every):
        server.round(stream.x[first : first + split.every], stream.y[first : first + split.every], outcome)
    outcome.params = server.params.detach().clone()
    return outcome


def averaged(learner: Learner, stream: Stream, make: MakeOptimizer) -> Tensor:
    """Parameters `[numel]` after OFedAvg, written down plainly: what `learn` must give where all send all."""
    params = learner.start.clone()
    optimizer = make([params])
    for x, y in zip(stream.x, stream.y, strict=True):
        total = torch.zeros(params.numel())
        for gradient in learner.gradients(params, x, y)[1]:
            total += gradient
        params.grad = total / stream.y.shape[1]
        optimizer.step()
    return params


def least_squares(stream: Stream, slots: int) -> float:
    """The least that the losses of the first slots sum up to, with one linear model for all clients."""
    x = stream.x[:slots].reshape(-1, stream.x.shape[-1]).double()
    y = stream.y[:slots].reshape(-1).double()
    solution = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
    return float((x @ solution - y).square().sum()) / 2 / stream.y.shape[1]


class Decaying(SGD):
    """Gradient descent with steps of `first / sqrt(slots so far)`."""

    def __init__(self, params: list[Tensor], first: float, every: int) -> None:
        super().__init__(params, lr=first)
        self._first, self._every, self._rounds = first, every, 0

    def step(self, closure: Any = None) -> Any:
        """One step, smaller than the last."""
        self._rounds += 1
        for group in self.param_groups:
            group["lr"] = self._first / (self._rounds * self._every) ** 0.5
        return super().step(closure)


class _Server:
    """The model, the clients' cadences, and their messages."""

    def __init__(self, learner: Learner, split: Split, make: MakeOptimizer, clients: int, seed: int) -> None:
        self._learner, self._split, self._clients = learner, split, clients
        self.params = learner.start.clone().requires_grad_()
        self._optimizer = make([self.params])
        self._cadence = Intermittent(probability=split.probability, seed=seed)
        start = self._cadence.start()
        self._states: list[Any] = [
            self._cadence.handle(Joined(rank, clients), start, 0.0) for rank in range(clients)
        ]
        self._spec = Spec(learner.shapes)
        self._compressor = _compressor(split, self._spec.numel, seed)
        self._rounds = 0

    def round(self, x: Tensor, y: Tensor, outcome: Outcome) -> None:
        """The slots of one round, and the server's step."""
        drawn = self._drawn()
        sums = torch.zeros(len(drawn), self._spec.numel)
        for slot in range(len(y)):
            self._slot(x[slot], y[slot], drawn, sums, outcome)
        total = torch.zeros(self._spec.numel)
        for rank, value in zip(drawn, sums, strict=True):
            turn = Turn(self._spec, self._rounds, 0, rank, self._clients)
            packet, _ = self._compressor.encode(value.div_(self._split.probability), None, turn)
            packet.add_to(total)
            outcome.sent_bytes += packet.pack().numel() - HEADER_BYTES
            outcome.messages += 1
        self._rounds += 1
        self.params.grad = total.div_(self._clients)
        self._optimizer.step()

    def _drawn(self) -> list[int]:
        """The clients that will send at the end of this round."""
        drawn = []
        for rank, state in enumerate(self._states):
            decision, self._states[rank] = self._cadence.poll(state, 0.0)
            if not decision.silent:
                drawn.append(rank)
        return drawn

    def _slot(self, x: Tensor, y: Tensor, drawn: Sequence[int], sums: Tensor, outcome: Outcome) -> None:
        """One sample per client. Only who will send works out a gradient: the others would drop it."""
        params = self.params.detach()
        if len(drawn) < len(y):
            with torch.no_grad():
                outputs = self._learner.outputs(params.expand(len(y), -1), x)
        if drawn:
            picked, gradients = self._learner.gradients(params, x[drawn], y[drawn])
            sums += gradients
            outputs = picked if len(drawn) == len(y) else outputs
        outcome.losses.append(float(self._learner.losses(outputs, y).mean()))
        outcome.right.append(float((outputs.argmax(dim=1) == y).float().mean()))


def _compressor(split: Split, numel: int, seed: int) -> Identity | Levels:
    if split.levels is None:
        return Identity()
    return Levels(split.levels, split.block(numel), bidirectional=False, seed=seed)


@dataclass(frozen=True, slots=True)
class Score:
    """A split and what it is expected to cost: the summand above, in units of |g|²."""

    split: Split
    cost: float


def growth(gradients: Tensor, levels: int, block: int) -> float:
    """1 + w: how much longer squared the quantised `gradients`, `[count, numel]`, are than themselves, on
    average."""
    short = -gradients.shape[1] % block
    blocks = torch.nn.functional.pad(gradients, (0, short)).reshape(len(gradients), -1, block)
    norms = blocks.norm(dim=2, keepdim=True)
    places = blocks.abs() * (levels / norms.clamp_min(1e-30))
    below = places.floor()
    squares = below.square() + (places - below) * (2 * below + 1)
    sent = (squares * (norms / levels).square()).sum()
    return float(sent / blocks.square().sum().clamp_min(1e-30))


def choose(share: float, clients: int, gradients: Tensor, slots: int) -> Score:
    """The best split of a budget, among those with `STEPS` rounds or more: fewer get an optimizer nowhere.

    Args:
      share: of OFedAvg's traffic.
      clients: how many.
      gradients: `[count, numel]` of single clients at one model, count 2 or more; samples.
      slots: length of the stream.

    Raises: UsageError if no split fits the budget.
    """
    rounds = [every for every in ROUNDS if every == 1 or every * STEPS <= slots]
    forms = {form: growth(gradients, *form) for form in product(LEVELS, BLOCKS)}
    scores = [score for every in rounds for score in _scores(share, clients, gradients, every, forms)]
    if not scores:
        raise UsageError(
            f"no split of OFedQIT has {share:.2%} of the full traffic: that is below a bit per round"
        )
    return min(scores, key=lambda score: score.cost)


def _scores(
    share: float, clients: int, gradients: Tensor, every: int, grows: Mapping[tuple[int, int], float]
) -> Iterator[Score]:
    numel = gradients.shape[1]
    mean_square, variance = _moments(gradients)
    for (levels, block), grown in grows.items():
        split = Split(1.0, every, levels, -(-numel // block)).within(share, numel)
        if split.probability * clients < 1:
            continue  # rounds in which nobody sends
        one = grown * (variance + every * mean_square) / split.probability - every * mean_square
        yield Score(split, (every * mean_square + one / clients) / mean_square)


def _moments(gradients: Tensor) -> tuple[float, float]:
    """Unbiased estimates of |g|² and V; the first at least a hundredth of the second divided by the count."""
    count = len(gradients)
    mean = gradients.mean(dim=0)
    variance = float((gradients - mean).square().sum()) / (count - 1)
    return max(float(mean.square().sum()) - variance / count, variance / count / 100), variance
