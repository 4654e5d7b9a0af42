"""In which form contributions and models cross a link between a worker and its hub."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tweed.compress import ClippedNoise, Codec, Direct, ErrorFeedback, LocalResidual, Spec
from tweed.compress.clipped_noise import Source
from tweed.compress.native.sparse import all_finite
from tweed.errors import DataError
from tweed.exchange.checkpoint import check_same, filled, plain
from tweed.exchange.gradient_form import GradientForm
from tweed.hub.wire.messages import Offer
from tweed.strategy import Strategy


class ContributionForm:
    """How one worker's contributions cross, and what they stand for; the worker encodes, and the hub decodes.

    With `ErrorFeedback` what a packet leaves out is kept, and all of it if the contribution was dropped. What
    has arrived is gone, also in the rare case that nothing comes of a whole batch (`Abandon`). With
    `LocalResidual` it moves the model that the worker computes on next.

    With `Hub(privacy=...)` noise comes first, so that the packet, its norm, and what is kept to be sent
    later are made of what has noise already; the hub receives neither samples nor a loss. A local residual
    stays with the worker, and has none.

    Args:
      strategy: what is exchanged, and how it is compressed.
      spec: of all parameters, side by side.
      worker: whose.
      source: of noise, at a worker; see `compress.ClippedNoise`.

    Attributes:
      noisy: contributions that had noise: what the worker's privacy is counted by.
    """

    def __init__(self, strategy: Strategy, spec: Spec, worker: int, source: Source | None = None) -> None:
        memory = strategy.memory
        assert isinstance(memory, Direct | ErrorFeedback | LocalResidual | None)  # the strategy was checked
        self._privacy: ClippedNoise | None = None if strategy.hub is None else strategy.hub.privacy
        self._source, self.noisy = source, 0
        self._form, self._numel = GradientForm(memory, spec, worker), spec.numel
        self._exchange = strategy.exchange
        self._weight = memory.weight if isinstance(memory, Direct) else 1.0
        # A worker's, once it has something to send: a hub has forms of many members, and none of these.
        self._feeds_back = isinstance(memory, ErrorFeedback)
        self._is_local = isinstance(memory, LocalResidual)
        self._error: Tensor | None = None
        self._ahead: Tensor | None = None
        # What was computed, what of it was to be sent, and what is.
        self._open: tuple[Tensor, Tensor, Tensor] | None = None

    def begin(self, model: Tensor) -> Tensor:
        """Where the worker begins, `[numel]`, given the model that came with the task."""
        return model if self._ahead is None else model - self._ahead

    @property
    def is_ahead(self) -> bool:
        """Whether that is another model than the one that came."""
        return self._ahead is not None and bool(self._ahead.any())

    def forget(self) -> None:
        """The worker begins with the hub's model again."""
        if self._ahead is not None:
            self._ahead.zero_()

    def value(self, begun: Tensor, now: Tensor) -> Tensor:
        """What there is to send after local steps: for differences the opposite of how far the model has
        come, as the hub steps against what it gets.

        Args:
          begun, now: `[numel]`, where the worker began, and where it is.
        """
        return now.clone() if self._exchange == "model" else begun - now

    @property
    def most_bytes(self) -> int:
        """No contribution has more."""
        return self._form.most_bytes

    def offer(
        self,
        value: Tensor,
        number: int,
        samples: float = 1.0,
        loss: float = math.nan,
        own: Tensor | None = None,
    ) -> tuple[Offer, Tensor]:
        """What the hub is told of the contribution to the task of this number, and what goes to it then.

        What is not finite goes as nothing, which the hub's rule leaves out; with noise, as noise alone.

        Args:
          value: `[numel]` float32; taken over.
          number: from 1 on.
          samples, loss: see `Offer`.
          own: what was computed, if something else is sent; None: `value`.
        """
        value = value.mul_(self._weight)
        if self._privacy is None:
            total = value
        else:
            assert self._source is not None  # a worker has one
            total, self.noisy = self._privacy.randomised(value, self._source), self.noisy + 1
            samples, loss = 1.0, math.nan
        self._make_residual()
        if self._error is not None:
            total = total + self._error
        sent, norm = torch.zeros_like(total), float(total.norm())
        finite = math.isfinite(norm) or all_finite(total)  # the norm of large ones overflows
        data = self._form.encode(total, sent, number - 1) if finite else torch.empty(0, dtype=torch.uint8)
        norm = float(sent.norm()) if finite else norm  # of what others make of the packet
        kept = finite and not (self._error is None and self._ahead is None)
        self._open = (value if own is None else own, total, sent) if kept else None
        return Offer(number, data.numel(), norm, samples, loss), data

    def _make_residual(self) -> None:
        if self._feeds_back and self._error is None:
            self._error = torch.zeros(self._numel)
        if self._is_local and self._ahead is None:
            self._ahead = torch.zeros(self._numel)

    def over(self, counted: bool) -> None:
        """What was encoded last has arrived and counts, or came to nothing."""
        if self._ahead is not None:
            self._ahead.zero_()
        if self._open is not None:
            own, total, sent = self._open
            if self._error is not None:
                torch.sub(total, sent, out=self._error) if counted else self._error.copy_(total)
            elif self._ahead is not None and all_finite(own):
                left = torch.where(sent == 0, own, total - sent) if counted else own
                self._ahead.copy_(left)
        self._open = None

    def stands_for(self, data: Tensor, number: int, newest: Callable[[], Tensor]) -> Tensor:
        """As what a contribution counts: a gradient for the hub's optimizer, `[numel]`.

        It is not a number, and so left out, if what came is no contribution.

        Args:
          newest: the hub's model, `[numel]`.
        """
        value = self.decode(data, number)
        return newest() - value if self._exchange == "model" else value

    def sum_stands_for(self, value: Tensor, count: int, newest: Callable[[], Tensor]) -> Tensor:
        """As what a sum of `count` decoded contributions counts; see `stands_for`."""
        return count * newest() - value if self._exchange == "model" else value

    def decode(self, data: Tensor, number: int) -> Tensor:
        """What was encoded for the task of this number, `[numel]`; not a number if it is no contribution."""
        value = torch.zeros(self._numel)
        try:
            self._form.decode(data, value, number - 1)
        except DataError:
            return value.fill_(math.nan)
        return value if data.numel() else value.fill_(math.nan)

    def missing(self, data: Tensor, number: int) -> Tensor | None:
        """Where a contribution has no value, `[numel]` bool, as nothing was sent and nothing will be; None:
        nowhere."""
        if not self._is_local or not data.numel():
            return None
        try:
            return self._form.absent(data, number - 1)
        except DataError:
            return None

    def state(self) -> dict[str, Any]:
        """A worker's, for a checkpoint: what is left to be sent, or where it begins."""
        error = self._ahead if self._error is None else self._error
        kept = None if error is None else error.clone()
        return {"error": kept, "form": plain(self._form.state), "noisy": self.noisy}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state`."""
        self._form.state, self.noisy = filled(self._form.state, state["form"]), state["noisy"]
        if state["error"] is not None:
            self._make_residual()
        error = self._ahead if self._error is None else self._error
        check_same((error is None) == (state["error"] is None))
        if error is not None:
            check_same(state["error"].shape == error.shape)
            error.copy_(state["error"])


class ModelForm:
    """How the model crosses to workers: all get the same bytes for a version.

    Args:
      codec: how it is compressed; None: as it is.
      spec: of all parameters, side by side.
      workers: how many there are.
    """

    def __init__(self, codec: Codec | None, spec: Spec, workers: int) -> None:
        memory = None if codec is None else Direct(codec)
        # Draws are other ones than those of workers, whose numbers are below.
        self._form, self._numel = GradientForm(memory, spec, workers), spec.numel
        self._last: tuple[int, Tensor] | None = None

    @property
    def most_bytes(self) -> int:
        """No model has more."""
        return self._form.most_bytes

    def encode(self, model: Tensor, version: int) -> Tensor:
        """What goes to workers: nothing, if the model is not finite, so that nobody trains on something else.

        Args:
          model: `[numel]` float32, of that version.
        """
        if self._last is None or self._last[0] != version:
            empty = torch.empty(0, dtype=torch.uint8)
            data = self._form.encode(model, torch.zeros_like(model), version) if all_finite(model) else empty
            self._last = version, data
        return self._last[1]

    def decode(self, data: Tensor, version: int) -> Tensor:
        """The model that a worker computes on: `[numel]`; not a number if there is none. Raises DataError for
        what cannot be a model."""
        model = torch.zeros(self._numel)
        if not data.numel():
            return model.fill_(math.nan)
        self._form.decode(data, model, version)
        return model

    def state(self) -> Any:
        """The state of the codec, for a checkpoint."""
        return plain(self._form.state)

    def load(self, state: Any) -> None:
        """Goes on from `state`."""
        self._form.state = filled(self._form.state, state)
