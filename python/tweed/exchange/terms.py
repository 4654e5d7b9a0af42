"""All that those who train together must agree on, and a log with whoever replays it."""

from __future__ import annotations

from typing import Any

from torch import nn

from tweed.strategy import Strategy


def terms(model: nn.Module, strategy: Strategy, settings: dict[str, Any]) -> list[str]:
    """All that ranks must agree on before they exchange anything, a line each."""
    lines = [f"strategy {strategy!r}", *(f"{name} {value}" for name, value in settings.items())]
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        dtype = str(tensor.dtype).removeprefix("torch.")
        lines.append(f"{name} {dtype}{list(tensor.shape)} requires_grad={tensor.requires_grad}")
    return lines
