"""What is trained, looked up in the model each time, since loops give parameters new memory and replace them.

Theory of operation. A parameter is known by its name, which stands for a place in a module. Nobody keeps the
tensor: all exchanges hold a `Trained`, a mapping, and ask it anew. Before an exchange `look` compares the
model with what it was: the objects in all modules, and the address of each parameter's memory. The old memory
is held until then, so that no other one gets its address.

    what has changed                                                what follows
    nothing                                                         nothing
    memory: `param.data = ...`, `.to(memory_format=...)`            it is taken up
    a parameter object of the same form: `assign=True`              it is taken up
    a name has left or come; another shape, dtype or device         refused, at all ranks

Version counters are not used: `t.data.mul_()` moves none. So `digest` reads all bytes.

Parameters that FSDP2 spreads over processes are not looked at: it replaces them itself in each forward pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from operator import is_

import torch
import xxhash
from torch import Tensor, nn
from torch.nn import Parameter

from tweed.errors import UsageError
from tweed.exchange.bucket import as_bytes, dense_strides
from tweed.exchange.shards import is_spread

_AGAIN = "since attach, and ranks would train different models: detach() and attach again, on all ranks"

#: Shape, dtype and device.
_Form = tuple[torch.Size, torch.dtype, torch.device]


class Trained(Mapping[str, Parameter]):
    """The parameters of `model` that are trained, by name, in the order of the model.

    Which these are is decided once: those that require a gradient now.

    Attributes:
      objects: the parameters; another list whenever one of them is another object.

    Raises: nothing; a name whose parameter has left gives KeyError, until `look` has said why.
    Cost: of `look`, 0.3 us per parameter and module if nothing has changed.

    Example:
      >>> model = nn.Linear(2, 1, bias=False)
      >>> trained = Trained(model)
      >>> model.weight.data = torch.ones(1, 2)
      >>> trained.look() is None, trained["weight"].tolist()
      (True, [[1.0, 1.0]])
      >>> model.weight.data = model.weight.data.double()
      >>> print(trained.look())  # doctest: +ELLIPSIS
      parameter 'weight' was float32[1, 2] on cpu and is float64[1, 2] on cpu since attach...
    """

    _bytes: list[memoryview] | None

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        all_of_it = dict(model.named_parameters())
        self._names = [name for name, param in all_of_it.items() if param.requires_grad]
        self._forms = {name: _form(all_of_it[name]) for name in self._names}
        self._strides = [dense_strides(all_of_it[name]) for name in self._names]
        self._is_spread = any(is_spread(param) for param in all_of_it.values())
        self._remember(all_of_it)

    def __getitem__(self, name: str) -> Parameter:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def has(self, module: nn.Module) -> bool:
        """Whether `module` was a part of the model when that was last looked at."""
        return module in self._modules

    def frozen(self) -> dict[str, Parameter]:
        """The parameters that are not trained."""
        return {name: param for name, param in self._model.named_parameters() if name not in self._found}

    def name_of(self, params: Collection[Parameter]) -> str | None:
        """What one of these is called in the model as it is now, trained or not; None: none is in it."""
        self.look()
        now = self._all if self._is_spread or self._is_same() else dict(self._model.named_parameters())
        return next((name for name, param in now.items() if param in params), None)

    def look(self) -> UsageError | None:
        """Takes up what has changed in the model. Returns why that cannot be; None: it can."""
        if self._is_spread or self._is_same():
            return None
        now = dict(self._model.named_parameters())
        for name in self._all:
            if name not in now:
                return UsageError(f"parameter {name!r} has left the model {_AGAIN}")
        for name in now:
            if name not in self._all:
                return UsageError(f"parameter {name!r} has come to the model {_AGAIN}")
        for name, form in self._forms.items():
            if (new := _form(now[name])) != form:
                return UsageError(f"parameter {name!r} was {_words(form)} and is {_words(new)} {_AGAIN}")
        self._remember(now)
        return None

    def digest(self) -> bytes:
        """A digest of the values of all parameters, in whatever order they lie. Cost: a pass over them."""
        if self._bytes is None:
            as_before = [memory.stride() for memory in self._memory] == self._strides
            on_host = all(memory.device.type == "cpu" for memory in self._memory)
            self._bytes = [*map(as_bytes, self._memory)] if as_before and on_host else None
        hashed = xxhash.xxh3_128()
        for values in self._bytes or map(as_bytes, self._memory, self._strides):
            hashed.update(values)
        return hashed.digest()

    def _is_same(self) -> bool:
        if sum(map(len, self._places)) != len(self._objects):
            return False
        objects = chain.from_iterable(place.values() for place in self._filled)
        with torch._C.DisableTorchFunctionSubclass():  # addresses are no values, for which steps are deferred
            return all(map(is_, objects, self._objects)) and (
                [*map(Tensor.data_ptr, self.objects)] == self._addresses
            )

    def _remember(self, now: dict[str, Parameter]) -> None:
        self._all = now
        self._found = {name: now[name] for name in self._names}
        self.objects = [*self._found.values()]
        self._modules = {*self._model.modules()}
        self._places = [place for module in self._modules for place in (module._parameters, module._modules)]
        self._filled = [place for place in self._places if place]
        self._objects = [*chain.from_iterable(place.values() for place in self._filled)]
        self._memory = [param.detach() for param in self.objects]
        self._bytes = None  # of the memory, where that shows it as it is
        self._addresses = [] if self._is_spread else [*map(Tensor.data_ptr, self.objects)]


def _form(param: Tensor) -> _Form:
    return param.shape, param.dtype, param.device


def _words(form: _Form) -> str:
    shape, dtype, device = form
    return f"{str(dtype).removeprefix('torch.')}{list(shape)} on {device}"
