"""What linear layers say of the factors of their gradients, for `exchange="factors"`.

Theory of operation. While a run is attached, each `torch.nn.Linear` computes its output by `_Product`. Its
backward pass forms the same gradients as torch's, and hands what came in and the gradient of what came out to
the record. Autograd gets the whole gradient as ever, so that hooks, `no_sync` and `torch.autograd.grad` work
as they do. The layer runs as torch's own, and its gradient is exchanged as a matrix: under `torch.compile`
and `torch.func`, if its class is not `torch.nn.Linear` itself, and if it has a `forward` of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter

from tweed.exchange.factor_record import DTYPES, FactorRecord, Factors

_records: WeakKeyDictionary[nn.Module, FactorRecord] = WeakKeyDictionary()


def factored_weights(model: nn.Module, trained: Mapping[str, Parameter]) -> dict[str, list[nn.Linear]]:
    """The trained weights whose factors can be known, by name, and the layers that have each."""
    names = {param: name for name, param in trained.items() if param.dtype in DTYPES}
    found: dict[str, list[nn.Linear]] = {}
    for module in model.modules():
        weight = module._parameters.get("weight")
        if type(module) is nn.Linear and "forward" not in vars(module) and weight in names:
            found.setdefault(names[weight], []).append(module)
    return found


class LinearFactors:
    """Has the layers of `weights` fill `record`, until `remove`.

    Args:
      weights: as `factored_weights` finds them.
      record: what they fill.
    """

    def __init__(self, weights: Mapping[str, list[nn.Linear]], record: FactorRecord) -> None:
        self._modules = [module for modules in weights.values() for module in modules]
        for module in self._modules:
            module.__class__ = RecordedLinear
            _records[module] = record

    def remove(self) -> None:
        """Layers are torch's own again."""
        for module in self._modules:
            _records.pop(module, None)
            if type(module) is RecordedLinear:
                module.__class__ = nn.Linear  # type: ignore[assignment]
        self._modules = []


class RecordedLinear(nn.Linear):
    """A linear layer of an attached model. A copy of it, or what is read from a file, is torch's own."""

    def forward(self, input: Tensor) -> Tensor:
        """Computes what `torch.nn.Linear` does, in the same dtype under autocast too."""
        record = None if torch.compiler.is_compiling() else _records.get(self)
        casts = torch.is_autocast_enabled(input.device.type)
        if record is None or not _can_record(input, self.weight, casts=casts):
            return super().forward(input)
        if not casts:
            return _product(input, self.weight, self.bias, record)
        # Within a function of autograd torch would cache the cast weight without its history.
        dtype = torch.get_autocast_dtype(input.device.type)
        bias = self._parameters["bias"]
        cast_bias = None if bias is None else bias.to(dtype)
        with torch.autocast(input.device.type, enabled=False):
            return _product(input.to(dtype), self.weight, cast_bias, record)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """As a `torch.nn.Linear`: copies and files outlive the run."""
        return nn.Linear.__new__, (nn.Linear,), self.__dict__


def _can_record(input: Tensor, weight: Tensor, *, casts: bool) -> bool:
    floats = input.dtype in DTYPES and weight.dtype in DTYPES
    wide = torch.float64 in (input.dtype, weight.dtype)  # which autocast leaves as they are
    return (
        torch.is_grad_enabled()
        and weight.requires_grad
        and type(input) in (Tensor, Parameter)
        and type(weight) is Parameter
        and not torch._C._are_functorch_transforms_active()
        and input.shape[-1:] == weight.shape[1:]
        and input.device == weight.device
        and (floats and not wide if casts else floats and input.dtype == weight.dtype)
    )


def _product(input: Tensor, weight: Tensor, bias: Tensor | None, record: FactorRecord) -> Tensor:
    output: Tensor = _Product.apply(input, weight, bias, record)
    return output


class _Product(torch.autograd.Function):
    """`F.linear`, in the dtype of its input, that hands factors of the weight's gradient to a record."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, record: FactorRecord) -> Tensor:
        """Autograd watches what is saved: a backward pass raises if it was changed meanwhile."""
        ctx.save_for_backward(input, weight if input.requires_grad else None)
        ctx.weight, ctx.record = weight, record
        return F.linear(input, weight.to(input.dtype), bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients; under `create_graph` nothing is recorded, as the gradient has a graph of its own."""
        (grad,) = grads
        input, weight = ctx.saved_tensors
        factors = Factors(grad.reshape(-1, grad.shape[-1]), input.reshape(-1, input.shape[-1]))
        of_input = grad @ weight.to(grad.dtype) if ctx.needs_input_grad[0] else None
        of_weight = of_bias = None
        if ctx.needs_input_grad[1]:
            of_weight = (factors.outputs.t() @ factors.inputs).to(ctx.weight.dtype)
            if not torch.is_grad_enabled():
                ctx.record.add(ctx.weight, of_weight, factors)
        if ctx.needs_input_grad[2]:
            of_bias = factors.outputs.sum(0)
        return of_input, of_weight, of_bias, None
