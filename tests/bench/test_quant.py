"""What the bench says about codes of a few bits."""

from __future__ import annotations

import pytest
import torch

from bench import example, quant

EXAMPLE = """sign, 1 bits
  copy, streaming                         30.0 GB/s      5.00 ms
  encode                                  15.0 GB/s      9.00 ms

uniform, 8 bits
  copy, streaming                         20.0 GB/s      5.00 ms
  decode, added                           30.0 GB/s      4.00 ms

"""


def test_each_kernel_is_set_against_the_copy_before_it() -> None:
    rows = [figure.row(quant.KERNELS) for figure in example.figures(EXAMPLE)]
    table = quant.kernels(rows)
    assert "| sign, 1 bits | encode | 9.00 ms | 15.0 | 0.50 | **no** |" in table
    assert "| uniform, 8 bits | decode, added | 4.00 ms | 30.0 | 1.50 | yes |" in table
    assert quant.kernels([]) == quant.beside([]) == ""


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_the_codecs_beside_ours_say_what_they_were_given() -> None:
    x = torch.randn(10_000, generator=torch.Generator().manual_seed(1))
    for side in quant._eight_bits(x):
        said = side.decode()
        assert isinstance(said, torch.Tensor) and float((said - x).norm() / x.norm()) < 0.02, side.side


def test_both_low_rank_steps_leave_what_they_do_not_say() -> None:
    matrix = torch.randn(60, 50, generator=torch.Generator().manual_seed(1))
    ours, hook = quant.Ours(matrix, 4), quant.Hook(matrix, 4)
    for side in (ours, hook):
        side.step()
    assert torch.allclose(ours._out + ours._error, matrix.reshape(-1), atol=1e-5)
    assert 0.5 < float(hook._error.norm() / matrix.norm()) < 1
