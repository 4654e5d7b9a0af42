"""How long a round of split learning takes, by a model of computing and of the radio. Pure.

Computing takes operations over a device's speed, sending bits over Shannon's rate. Schemes that are compared:

    epsl         all clients at once, a share phi of the rows is aggregated; phi = 0: parallel split learning
    federated    parallel split learning whose clients' layers are averaged behind each step (SFL)
    sequential   one client after the other, each with all of the band; the layers are handed on
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tweed.exchange.allocation import Demand, Floats, Radio, allocate
from tweed.workloads.split.aggregation import aggregated_rows

#: A backward pass has so many times the operations of the forward pass: gradients of inputs and weights.
BACKWARD = 2
_FLOAT_BITS = 32


@dataclass(frozen=True, slots=True)
class Layers:
    """What layers of a model compute and send, per row, behind each of them.

    Attributes:
      flops: `[layers]`, operations of the forward pass of each.
      values: `[layers]`, activations behind each.
      weights: `[layers]`, parameters of each.
    """

    flops: Floats
    values: Floats
    weights: Floats

    @classmethod
    def of(cls, model: nn.Sequential, row: Tensor) -> Layers:
        """Counts a model's layers by a row, `[1, ...]`.

        Example:
          >>> Layers.of(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.ones(1, 4)).flops.tolist()
          [24.0, 0.0]
        """
        flops, values, weights = [], [], []
        with torch.no_grad():
            for layer in model:
                with FlopCounterMode(display=False) as counter:
                    row = layer(row)
                flops.append(counter.get_total_flops())
                values.append(row.numel())
                weights.append(sum(param.numel() for param in layer.parameters()))
        return cls(*(np.array(one, dtype=np.float64) for one in (flops, values, weights)))

    def cuts(self) -> list[int]:
        """How many layers a client may have: those behind which its own have computed something, but all."""
        done = self.flops.cumsum()
        return [place for place in range(1, len(done)) if 0 < done[place - 1] < done[-1]]


@dataclass(frozen=True, slots=True)
class Setting:
    """Clients, their server and the radio.

    Attributes:
      layers: of the model.
      radio: between them.
      client_flops: `[clients]`, operations per second of each.
      server_flops: of the server.
      batch: rows of a client.
    """

    layers: Layers
    radio: Radio
    client_flops: Floats
    server_flops: float
    batch: int

    def demand(self, cut: int, phi: float, federated: bool = False) -> Demand:
        """What a round has to do if clients have `cut` layers."""
        clients, b = self.radio.clients, self.batch
        m = aggregated_rows(phi, [b])
        low, high = self.layers.flops[:cut].sum(), self.layers.flops[cut:].sum()
        bits = _FLOAT_BITS * self.layers.values[cut - 1]
        forward = clients * b + (m if clients > 1 else 0)
        fixed = (forward + BACKWARD * (m + clients * (b - m))) * high / self.server_flops
        model = _FLOAT_BITS * self.layers.weights[:cut].sum() if federated else 0.0
        each = np.ones(clients)
        return Demand(
            before_s=b * low / self.client_flops,
            up_bits=(b * bits + model) * each,
            fixed_s=fixed,
            broadcast_bits=m * bits + model,
            down_bits=(b - m) * bits * each,
            after_s=b * BACKWARD * low / self.client_flops,
        )

    def epsl_s(self, phi: float) -> float:
        """Seconds of a round in which all clients have trained on a batch, at the best allocation and cut."""
        return allocate(self.radio, [self.demand(cut, phi) for cut in self.layers.cuts()]).seconds

    def federated_s(self) -> float:
        """Likewise, of parallel split learning with averages of the clients' layers.

        The layers go up with the next activations and come back by broadcast, which is the least that it can
        take.
        """
        demands = [self.demand(cut, 0.0, federated=True) for cut in self.layers.cuts()]
        return allocate(self.radio, demands).seconds

    def sequential_s(self) -> float:
        """Likewise, one client after the other with the whole band, at the cut that is best for all.

        The layers go from a client to the next one by way of the server.
        """
        return min(sum(self._turns(cut)) for cut in self.layers.cuts())

    def _turns(self, cut: int) -> Iterator[float]:
        model = _FLOAT_BITS * self.layers.weights[:cut].sum()
        for client in range(self.radio.clients):
            radio = Radio(self.radio.gains[client : client + 1], *_limits(self.radio))
            alone = Setting(
                self.layers, radio, self.client_flops[client : client + 1], self.server_flops, self.batch
            )
            demand = alone.demand(cut, 0.0)
            owners = np.zeros(radio.subchannels, dtype=np.int64)
            power_w = radio.equal_power(owners)
            handed = model / radio.up_rates(owners, power_w)[0] + model / radio.down_rates(owners)[0]
            yield demand.seconds(radio, owners, power_w) + float(handed)


def _limits(radio: Radio) -> tuple[float, ...]:
    return radio.bandwidth_hz, radio.noise_w, radio.client_w, radio.total_w, radio.server_w


def drop(layers: Layers, clients: int, seed: int, subchannels: int = 20, batch: int = 64) -> Setting:
    """Clients at random places within 200 m of a server, with Rayleigh fading on each subchannel.

    Subchannels of 10 MHz, thermal noise of -174 dBm/Hz, path loss 10^-3.5 at 1 m with exponent 3.5; clients
    send with 32 mW each at most, the server with 40 mW on a subchannel. Clients compute 1 to 1.6 GFLOP/s, the
    server 5 GFLOP/s per client of five.

    Source: sizes after arXiv 2303.15991, table II, as far as known; distances and powers are ours.
    """
    random = np.random.default_rng([clients, seed])
    distance = 200 * np.sqrt(random.uniform(0.01, 1, size=(clients, 1)))
    gains = 10**-3.5 * distance**-3.5 * random.exponential(size=(clients, subchannels))
    noise_w = 10 ** (-17.4 - 3) * 10e6
    radio = Radio(gains, 10e6, noise_w, 0.032, 0.032 * clients, 0.04)
    return Setting(layers, radio, 16 * random.uniform(1e9, 1.6e9, clients), 32 * 5e9, batch)
