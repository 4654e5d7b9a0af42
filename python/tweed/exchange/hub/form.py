"""In which form contributions and models cross a link between a worker and its hub."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tweed.compress import Codec, Direct, ErrorFeedback, Spec
from tweed.errors import DataError
from tweed.exchange.checkpoint import check_same, filled, plain
from tweed.exchange.gradient_form import GradientForm
from tweed.strategy import Strategy


class ContributionForm:
    """How one worker's contributions cross, and what they stand for; the worker encodes, and the hub decodes.

    With `ErrorFeedback` what a packet leaves out is kept, and all of it if the contribution was dropped. What
    has arrived is gone, also in the rare case that nothing comes of a whole batch (`Abandon`).

    Args:
      strategy: what is exchanged, and how it is compressed.
      spec: of all parameters, side by side.
      worker, workers: whose, of how many.
    """

    def __init__(self, strategy: Strategy, spec: Spec, worker: int, workers: int) -> None:
        memory = strategy.memory
        assert isinstance(memory, Direct | ErrorFeedback | None)  # the strategy was checked
        self._form, self._numel = GradientForm(memory, spec, worker, workers), spec.numel
        self._exchange = strategy.exchange
        self._weight = memory.weight if isinstance(memory, Direct) else 1.0
        self._error = torch.zeros(spec.numel) if isinstance(memory, ErrorFeedback) else None
        self._open: tuple[Tensor, Tensor] | None = None  # what was to be sent, and what is

    def value(self, begun: Tensor, now: Tensor) -> Tensor:
        """What there is to send after local steps: for differences the opposite of how far the model has
        come, as the hub steps against what it gets.

        Args:
          begun, now: `[numel]`, the model that came with the task, and the worker's.
        """
        return now.clone() if self._exchange == "model" else begun - now

    @property
    def most_bytes(self) -> int:
        """No contribution has more."""
        return self._form.most_bytes

    def encode(self, value: Tensor, number: int) -> tuple[Tensor, float]:
        """What goes to the hub for the task of this number, and its length.

        What is not finite goes as nothing, which the hub's rule leaves out.

        Args:
          value: `[numel]` float32; taken over.
          number: from 1 on.
        """
        value = value.mul_(self._weight)
        total = value if self._error is None else value + self._error
        sent = torch.zeros_like(total)
        finite = bool(total.isfinite().all())
        data = self._form.encode(total, sent, number - 1) if finite else torch.empty(0, dtype=torch.uint8)
        self._open = (total, sent) if finite and self._error is not None else None
        return data, float(total.norm())

    def over(self, counted: bool) -> None:
        """What was encoded last has arrived and counts, or came to nothing."""
        if self._error is not None and self._open is not None:
            total, sent = self._open
            torch.sub(total, sent, out=self._error) if counted else self._error.copy_(total)
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
        """The same of the sum of so many contributions that were decoded."""
        return count * newest() - value if self._exchange == "model" else value

    def decode(self, data: Tensor, number: int) -> Tensor:
        """What was encoded for the task of this number, `[numel]`; not a number if it is no contribution."""
        value = torch.zeros(self._numel)
        try:
            self._form.decode(data, value, number - 1)
        except DataError:
            return value.fill_(math.nan)
        return value if data.numel() else value.fill_(math.nan)

    def state(self) -> dict[str, Any]:
        """A worker's, for a checkpoint: what is left to be sent."""
        error = None if self._error is None else self._error.clone()
        return {"error": error, "form": plain(self._form.state)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state`."""
        self._form.state = filled(self._form.state, state["form"])
        if self._error is not None:
            check_same(state["error"] is not None and state["error"].shape == self._error.shape)
            self._error.copy_(state["error"])


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
        self._form, self._numel = GradientForm(memory, spec, workers, workers + 1), spec.numel
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
            finite = bool(model.isfinite().all())
            empty = torch.empty(0, dtype=torch.uint8)
            data = self._form.encode(model, torch.zeros_like(model), version) if finite else empty
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
        """Of the codec, for a checkpoint."""
        return plain(self._form.state)

    def load(self, state: Any) -> None:
        """Goes on from `state`."""
        self._form.state = filled(self._form.state, state)
