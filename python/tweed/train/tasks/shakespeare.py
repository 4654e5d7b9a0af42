"""Shakespeare: a transformer that predicts the next character, two layers, some 115,000 parameters.

Shapes: B batch, L characters, D width, H heads.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from tweed.data import Arrays
from tweed.train.tasks.base import Task, adamw

WIDTH = 64
HEADS = 4
LAYERS = 2


class _Block(nn.Module):
    """Attention to earlier characters, then a perceptron, each added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.perceptron = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def _attend(self, x: Tensor) -> Tensor:
        split = (
            self.qkv(x).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        )  # [3, B, H, L, D/H]
        mixed = F.scaled_dot_product_attention(split[0], split[1], split[2], is_causal=True)
        joined: Tensor = self.out(mixed.transpose(1, 2).flatten(-2))
        return joined

    def forward(self, x: Tensor) -> Tensor:  # [B, L, D] to the same
        x = x + self._attend(self.norms[0](x))
        deeper: Tensor = self.perceptron(self.norms[1](x))
        return x + deeper


class _Model(nn.Module):
    def __init__(self, alphabet: int, length: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(alphabet, WIDTH)
        self.places = nn.Parameter(torch.empty(length, WIDTH))
        for table in (self.letters.weight, self.places):
            nn.init.normal_(table, std=0.02)
        self.blocks = nn.Sequential(*(_Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH))
        self.scores = nn.Linear(WIDTH, alphabet)

    def forward(self, codes: Tensor) -> Tensor:  # [B, L] to [B, alphabet, L]
        x = self.letters(codes) + self.places[: codes.shape[1]]
        scores: Tensor = self.scores(self.blocks(x))
        return scores.transpose(1, 2)


def _model(arrays: Arrays) -> nn.Module:
    return _Model(arrays.classes, arrays.train.x.shape[1])


def _inputs(x: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(x.astype(np.int64))


TASK = Task(_model, _inputs, adamw)
