"""Tensors that wait for whoever reads them. Pure: what they wait for is a function."""

from __future__ import annotations

import copy
import io
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import Parameter

from tweed.hooks.pending_step import PendingStep, PendingSteps
from tweed.hooks.trained import Trained

#: What reads a parameter, wherever torch does so.
READS: dict[str, Callable[[nn.Module, Parameter], Any]] = {
    "a forward pass": lambda model, param: model(torch.ones(1, 2)),
    "arithmetic": lambda model, param: param + 1,
    "a method": lambda model, param: param.sum(),
    "an element": lambda model, param: param[0],
    "text": lambda model, param: repr(param),
    "an array": lambda model, param: param.detach().numpy(),
    "its address": lambda model, param: param.data_ptr(),
    "its memory": lambda model, param: param.untyped_storage(),
    "its data": lambda model, param: param.data,
    "a write": lambda model, param: nn.init.zeros_(param),
    "new data": lambda model, param: setattr(param, "data", torch.ones_like(param)),
    "the state of the model": lambda model, param: model.state_dict(),
    "another state": lambda model, param: model.load_state_dict({"weight": torch.ones(1, 2)}),
    "a copy": lambda model, param: copy.deepcopy(model),
    "a file": lambda model, param: torch.save(model, io.BytesIO()),
    "another dtype": lambda model, param: model.double(),
    "a list of tensors": lambda model, param: torch._foreach_norm([torch.ones(1), param]),
    "a function of two": lambda model, param: torch.func.functional_call(model, {}, torch.ones(1, 2)),
    "a vector of all": lambda model, param: nn.utils.parameters_to_vector(model.parameters()),
    "an average of models": lambda model, param: torch.optim.swa_utils.AveragedModel(model),
}
#: What asks a parameter for what a step does not change.
QUESTIONS: dict[str, Callable[[Parameter], Any]] = {
    "shape": lambda param: (param.shape, param.size(), param.numel(), param.dim(), param.ndim),
    "kind": lambda param: (param.dtype, param.device, param.layout, param.element_size()),
    "graph": lambda param: (param.requires_grad, param.is_leaf, param.grad_fn),
    "gradient": lambda param: param.grad is None,
    "no gradient": lambda param: setattr(param, "grad", None),
    "set": lambda param: param in {param},
    "parameter": lambda param: isinstance(param, Parameter),
}


def one(value: float = 4.0) -> tuple[nn.Linear, PendingStep, list[str]]:
    """A layer whose weight, of ones, is to be stepped by minus an average of `value`; and what happens."""
    model, average, log = nn.Linear(2, 1, bias=False), torch.zeros(1, 2), list[str]()
    nn.init.ones_(model.weight)
    pending = PendingStep([model.weight])
    model.weight.grad = average

    def wait() -> None:
        log.append("wait")
        average.fill_(value)

    def step() -> None:
        log.append(f"step {type(model.weight).__name__}")
        model.weight.data -= model.weight.grad

    pending.begin([average], wait)
    pending.defer(step)
    return model, pending, log


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_reader_waits_for_the_step_once_and_finds_an_ordinary_parameter(
    read: Callable[[nn.Module, Parameter], Any],
) -> None:
    model, pending, log = one()
    param = model.weight
    read(model, param)
    read(model, param)
    assert log == ["wait", "step Parameter"]  # torch chooses kernels by the class
    assert type(param) is Parameter and type(param.grad) is Tensor and not pending.under_way


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_what_a_step_does_not_change_is_answered_at_once(ask: Callable[[Parameter], Any]) -> None:
    model, pending, log = one()
    ask(model.weight)
    assert log == [] and pending.under_way
    assert model(torch.ones(1, 2)).item() == -6


def test_what_is_read_is_what_the_step_has_made() -> None:
    model, _, _ = one()
    assert model(torch.ones(1, 2)).item() == -6
    model, _, _ = one()
    assert copy.deepcopy(model).weight.tolist() == [[-3.0, -3.0]]
    model, _, _ = one()
    stored = io.BytesIO()
    torch.save(model, stored)
    stored.seek(0)
    loaded = torch.load(stored, weights_only=False)
    assert type(loaded.weight) is Parameter and loaded.weight.tolist() == [[-3.0, -3.0]]


def test_gradients_are_waited_for_when_they_are_read_and_not_when_they_are_cleared() -> None:
    param, average = Parameter(torch.ones(2)), torch.zeros(2)
    pending = PendingStep([param])
    param.grad = average
    pending.begin([average], lambda: average.fill_(3))
    assert param.grad is average and pending.under_way and param.sum().item() == 2
    norm = nn.utils.clip_grad_norm_([param], 1.0)
    assert not pending.under_way and norm.item() == pytest.approx(18**0.5)
    pending.begin([average], lambda: average.fill_(3))
    param.grad = None
    assert pending.under_way


@pytest.mark.parametrize("to_none", [False, True])
def test_a_step_takes_the_gradient_of_its_moment_and_leaves_the_one_of_now(to_none: bool) -> None:
    model, _, _ = one()
    model.zero_grad(to_none)
    now = model.weight.grad
    assert model(torch.ones(1, 2)).item() == -6
    assert model.weight.grad is now and (now is None or not now.any())


def test_a_gradient_of_the_programs_own_is_stepped_with() -> None:
    param, average = Parameter(torch.ones(2)), torch.zeros(2)
    pending = PendingStep([param])
    pending.begin([average], lambda: average.fill_(3))
    param.grad = torch.full((2,), 10.0)
    pending.defer(lambda: param.data.sub_(param.grad))  # type: ignore[arg-type]
    assert param.tolist() == [-9.0, -9.0]


def test_steps_of_two_optimizers_are_taken_in_their_order() -> None:
    param, log = Parameter(torch.ones(2)), list[str]()
    pending = PendingStep([param])
    pending.begin([], lambda: log.append("wait"))
    for name in ("first", "second"):
        pending.defer(partial(log.append, name))
    param.sum()
    assert log == ["wait", "first", "second"]


def test_a_wait_that_fails_raises_at_the_reader_and_takes_no_step() -> None:
    param, log = Parameter(torch.ones(2)), list[str]()
    pending = PendingStep([param])

    def fails() -> None:
        raise RuntimeError("peer 1 is lost")

    pending.begin([], fails)
    pending.defer(lambda: log.append("step"))
    with pytest.raises(RuntimeError, match="peer 1 is lost"):
        param.sum()
    assert log == [] and type(param) is Parameter and param.sum().item() == 2


def test_tensors_of_several_buckets_in_one_call_are_all_waited_for() -> None:
    params, log = [Parameter(torch.ones(2)) for _ in range(3)], list[int]()
    pending = PendingSteps([[param] for param in params])
    for number, each in enumerate(pending):
        each.begin([], partial(log.append, number))
        each.defer(lambda: None)
    torch.stack([params[2], params[0]])
    assert sorted(log) == [0, 2]
    assert pending.of(params[1]) is not None and pending.of(params[0]) is None
    assert pending.of(Parameter(torch.ones(1))) is None
    pending.complete()
    assert sorted(log) == [0, 1, 2]


def test_what_is_dropped_is_never_stepped() -> None:
    model, pending, log = one()
    PendingSteps([]).drop()
    pending.drop()
    assert model(torch.ones(1, 2)).item() == 2 and log == []


@pytest.mark.parametrize("place", [torch.no_grad, torch.inference_mode, partial(torch.device, "meta")])
def test_the_step_is_the_same_wherever_the_reader_is(place: Callable[[], Any]) -> None:
    param, average = Parameter(torch.ones(2)), torch.ones(2)
    optimizer = torch.optim.Adam([param], lr=1.0)
    pending = PendingStep([param])
    for _ in range(2):
        param.grad = average
        pending.begin([average], lambda: None)
        pending.defer(optimizer.step)
        with place():
            param.detach()
    assert param.tolist() == pytest.approx([-1.0, -1.0])
    assert not any(value.is_inference() for value in optimizer.state[param].values())


def test_autocast_of_the_reader_does_not_reach_the_step() -> None:
    model, pending, _ = one()
    seen = []
    pending.defer(lambda: seen.append(torch.is_autocast_enabled("cpu")))
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.ones(1, 2))
        assert torch.is_autocast_enabled("cpu")
    assert seen == [False]


def test_layers_that_hold_parameters_without_calling_modules_wait_too() -> None:
    torch.manual_seed(0)
    for layer, inputs in (
        (nn.LSTM(2, 3), (torch.ones(1, 1, 2),)),
        (nn.MultiheadAttention(2, 1), (torch.ones(1, 1, 2),) * 3),
    ):
        twin = copy.deepcopy(layer)
        params = list(layer.parameters())
        pending = PendingSteps([[param] for param in params])
        for each, param in zip(pending, params, strict=True):
            each.begin([], lambda: None)
            each.defer(partial(param.data.add_, 1))
        with torch.no_grad():
            for param in twin.parameters():
                param.add_(1)
        mine, true = layer(*inputs)[0], twin(*inputs)[0]
        assert torch.equal(mine, true)


def test_the_step_is_taken_in_the_readers_thread_and_others_wait_for_it() -> None:
    param, threads = Parameter(torch.ones(2)), list[int]()
    pending, begun, may_end = PendingStep([param]), threading.Event(), threading.Event()

    def step() -> None:
        threads.append(threading.get_ident())
        begun.set()
        may_end.wait()

    pending.begin([], lambda: None)
    pending.defer(step)
    reader, other = threading.Thread(target=param.sum), threading.Thread(target=pending.complete)
    reader.start()
    begun.wait()
    other.start()
    assert pending.under_way and other.is_alive()
    may_end.set()
    reader.join()
    other.join()
    assert threads == [reader.ident] and not pending.under_way


def test_a_model_is_looked_at_without_waiting() -> None:
    model, pending, log = one()
    trained = Trained(model)
    pending.complete()
    pending.begin([], lambda: log.append("again"))
    pending.defer(lambda: None)
    assert trained.look() is None and trained.name_of({model.weight}) == "weight"
    assert log == ["wait", "step Parameter"] and pending.under_way


def test_parameters_wait_until_the_exchange_has_ended_and_no_longer() -> None:
    param, classes = Parameter(torch.ones(2)), list[type]()
    average = torch.zeros(2)
    pending = PendingStep([param])
    param.grad = average

    def look(*of: Tensor) -> None:
        classes.extend(map(type, of))

    pending.begin([average], lambda: look(param, average))
    pending.defer(lambda: look(param))
    pending.complete()
    waited, of_view, stepped = classes
    assert issubclass(waited, Parameter) and waited is not Parameter  # others who read wait too
    assert (of_view, stepped) == (Tensor, Parameter)


def test_who_reads_within_the_wait_as_a_signals_handler_does_takes_the_step_and_nobody_again() -> None:
    param, steps = Parameter(torch.ones(2)), list[float]()
    pending = PendingStep([param])

    def waits() -> None:
        if not steps:
            param.sum()

    pending.begin([], waits)
    pending.defer(lambda: steps.append(1.0))
    param.sum()
    assert steps == [1.0] and not pending.under_way


def test_a_step_that_fails_is_remembered() -> None:
    model, average = nn.Linear(2, 1), torch.zeros(1, 2)
    pending = PendingStep([model.weight])

    def fails() -> None:
        raise MemoryError("no room for the state")

    pending.begin([average], lambda: None)
    pending.defer(fails)
    with pytest.raises(MemoryError):
        model(torch.ones(1, 2))
    assert isinstance(pending.failed, MemoryError) and type(model.weight) is Parameter


def test_a_child_process_finds_steps_taken() -> None:
    param = Parameter(torch.ones(2))
    (pending,) = every = PendingSteps([[param]])
    pending.begin([], lambda: None)
    pending.defer(lambda: param.data.fill_(7))
    child = os.fork()
    if not child:
        os._exit(int(param.detach().numpy()[0]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7 and every.of(param) is None
