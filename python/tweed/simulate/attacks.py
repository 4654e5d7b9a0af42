"""What hostile workers send: each attack is a value that turns what honest workers send into that.

    attack = Alie()
    attack.contributions(own, honest, batch=3)       # [f, numel]: one for each hostile worker

An attack sees all that honest workers contribute to the batch, and what its own workers would have sent if
they were honest. `Tuned` knows the rule besides. `LabelFlip` is an attack on data: gradients are honest ones
of wrong labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Protocol

import torch
from torch import Tensor

from tweed.aggregate import Aggregate, Arrival, conclude
from tweed.rng import uniform


class Attack(Protocol):
    """What hostile workers do."""

    def contributions(self, own: Tensor, honest: Tensor, batch: int) -> Tensor:
        """What they send, `[f, numel]`.

        Args:
          own: `[f, numel]`, what they would have sent.
          honest: `[n - f, numel]`, what the others send.
          batch: number of this one.
        """
        ...


@dataclass(frozen=True, slots=True)
class SignFlip:
    """Each sends the opposite of its own, `scale` times as long."""

    scale: float = 1.0

    def contributions(self, own: Tensor, honest: Tensor, batch: int) -> Tensor:
        return own * -self.scale


@dataclass(frozen=True, slots=True)
class LabelFlip:
    """Each learns label `classes - 1 - y` where the data say `y`; what it sends of that is as it comes."""

    classes: int = 10

    def labels(self, labels: Tensor) -> Tensor:
        """What a hostile worker takes for `labels`."""
        return self.classes - 1 - labels

    def contributions(self, own: Tensor, honest: Tensor, batch: int) -> Tensor:
        return own


@dataclass(frozen=True, slots=True)
class Noise:
    """Each sends normal noise of this standard deviation per number."""

    deviation: float = 200.0
    seed: int = 0

    def contributions(self, own: Tensor, honest: Tensor, batch: int) -> Tensor:
        drawn = torch.Generator().manual_seed(1_000_003 * self.seed + batch)
        return torch.randn(own.shape, generator=drawn).to(own) * self.deviation


@dataclass(frozen=True, slots=True)
class NoiseAsLong:
    """Each sends normal noise that is `scale` times as long as its own."""

    scale: float = 8.0
    seed: int = 0

    def contributions(self, own: Tensor, honest: Tensor, batch: int) -> Tensor:
        noise = Noise(1.0, self.seed).contributions(own, honest, batch)
        length = own.norm(dim=1, keepdim=True)
        return noise.mul_(self.scale * length / noise.norm(dim=1, keepdim=True))


@dataclass(frozen=True, slots=True)
class Alie:
    """All send the honest mean, less so many honest standard deviations of each number: "a little is enough".

    Args:
      deviations: None: as many as hide the hostile among just enough honest ones to make a majority.

    Source: Baruch, Baruch, Goldberg, "A little is enough: circumventing defenses for distributed learning",
      2019, algorithm 3.
    """

    deviations: float | None = None

    def contributions(self, own: Tensor, honest: Tensor, batch: int) -> Tensor:
        found = self.deviations
        if found is None:
            found = hiding(len(honest), len(own))
        deviation = honest.std(dim=0, correction=0)
        return (honest.mean(dim=0) - found * deviation).expand(own.shape).clone()


def hiding(honest: int, hostile: int) -> float:
    """The most standard deviations from the mean at which enough honest workers are expected farther out."""
    supporters = max(0, (honest + hostile) // 2 + 1 - hostile)
    share = min(max((honest - supporters) / honest, 0.5), 1 - 1e-3)
    return NormalDist().inv_cdf(share)


@dataclass(frozen=True, slots=True)
class Ipm:
    """All send the opposite of the honest mean, `scale` times as long: "inner product manipulation".

    Source: Xie, Koyejo, Gupta, "Fall of empires: breaking Byzantine-tolerant SGD by inner product
      manipulation", 2019.
    """

    scale: float = 0.5

    def contributions(self, own: Tensor, honest: Tensor, batch: int) -> Tensor:
        return (honest.mean(dim=0) * -self.scale).expand(own.shape).clone()


@dataclass(frozen=True, slots=True)
class Mimic:
    """All send what one honest worker sends, so that its data count for more than those of others.

    Args:
      worker: which one, by its number among honest ones.

    Source: Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", 2022,
      section 4; there the worker is chosen by its gradients.
    """

    worker: int = 0

    def contributions(self, own: Tensor, honest: Tensor, batch: int) -> Tensor:
        return honest[self.worker % len(honest)].expand(own.shape).clone()


@dataclass(frozen=True, slots=True)
class Constant:
    """Each sends `value` as every number: zero, as a silent worker counts; NaN; one that is huge."""

    value: float = 0.0

    def contributions(self, own: Tensor, honest: Tensor, batch: int) -> Tensor:
        return torch.full_like(own, self.value)


@dataclass(frozen=True, slots=True)
class Sleeper:
    """Honest until batch `wakes`; from then on as `then`."""

    then: Attack
    wakes: int = 100

    def contributions(self, own: Tensor, honest: Tensor, batch: int) -> Tensor:
        return own if batch < self.wakes else self.then.contributions(own, honest, batch)


@dataclass(frozen=True, slots=True)
class Tuned:
    """`Alie` or `Ipm` with the strength that does most harm: that for which the rule's result, from an empty
    state, is farthest from the honest mean.

    Args:
      attack: with any strength.
      rule: that is attacked.
      strengths: that are tried, each batch anew.
    """

    attack: Alie | Ipm
    rule: Aggregate[Any]
    strengths: Sequence[float] = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0, 8.0)

    def contributions(self, own: Tensor, honest: Tensor, batch: int) -> Tensor:
        mean = honest.mean(dim=0)
        tried = [self._with(strength).contributions(own, honest, batch) for strength in self.strengths]
        return max(tried, key=lambda sent: float((self.result(honest, sent) - mean).norm()))

    def _with(self, strength: float) -> Alie | Ipm:
        if isinstance(self.attack, Alie):
            return replace(self.attack, deviations=strength)
        return replace(self.attack, scale=strength)

    def result(self, honest: Tensor, sent: Tensor) -> Tensor:
        """What the rule makes of what honest and hostile workers send."""
        state = self.rule.start()
        for sender, value in enumerate((*sent, *honest)):
            state = self.rule.handle(Arrival(value, sender), state, 0.0)
        return torch.as_tensor(conclude(self.rule, state, 0.0)[0])


@dataclass(frozen=True, slots=True)
class HostileLayers:
    """Some layers of what is sent are an attack's, whoever sends them: no worker is honest throughout.

    Args:
      attack: of one layer, which it sees alone.
      share: probability with which a layer is hostile, for each contribution anew.
      seed: of these draws.

    Source: the attacks of ZenoPS's code, Algorithms 15(7):233, 2022.
    """

    attack: Attack
    share: float = 0.2
    seed: int = 0

    def spoilt(self, value: Tensor, sizes: Sequence[int], member: int, number: int) -> Tensor:
        """What `member` sends for its task of this number.

        Args:
          value: `[numel]`, what it would have sent; not changed.
          sizes: of the layers.
        """
        out = value.clone()
        for at, layer in enumerate(torch.split(out, list(sizes))):
            if uniform(self.seed, member, number, at) < self.share:
                own, batch = layer[None].clone(), int(2**40 * uniform(self.seed + 1, member, number, at))
                layer.copy_(self.attack.contributions(own, own, batch)[0])
        return out


#: Each of those that need not know the rule, by name, for comparisons.
SUITE: Mapping[str, Attack] = {
    "sign": SignFlip(),
    "sign, tenfold": SignFlip(10.0),
    "label": LabelFlip(),
    "noise": Noise(),
    "ALIE": Alie(),
    "IPM": Ipm(),
    "mimic": Mimic(),
    "silent": Constant(),
    "NaN": Constant(math.nan),
    "huge": Constant(1e30),
    "sleeper": Sleeper(SignFlip(10.0), wakes=40),
}
