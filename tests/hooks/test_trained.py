"""What is trained is looked up: what a loop may change in a model, and what is refused. Pure."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from tweed.hooks.trained import Trained


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 3, 2), nn.Linear(3, 2), nn.Linear(2, 1, bias=False).requires_grad_(False)
    )


def other_data(model: nn.Sequential) -> None:
    model[1].weight.data = model[1].weight.data.clone()


def other_format(model: nn.Sequential) -> None:
    model.to(memory_format=torch.channels_last)


def from_vector(model: nn.Sequential) -> None:
    params = list(model.parameters())
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(params), params)


def assigned(model: nn.Sequential) -> None:
    model.load_state_dict({name: one.clone() for name, one in model.state_dict().items()}, assign=True)


def other_module(model: nn.Sequential) -> None:
    model[1] = nn.Linear(3, 2)


def there_and_back(model: nn.Sequential) -> None:
    model.double().float()


Change = Callable[[nn.Sequential], object]
TAKEN_UP: tuple[Change, ...] = (
    lambda model: None,
    other_data,
    other_format,
    from_vector,
    assigned,
    other_module,
    there_and_back,
    lambda model: model.requires_grad_(False),
    lambda model: model[2].double(),  # which is not trained
)
REFUSED: dict[str, Change] = {
    "'0.weight' was float32[3, 2, 2, 2] on cpu and is float64[3, 2, 2, 2]": lambda model: model.double(),
    "'1.weight' was float32[2, 3] on cpu and is bfloat16": lambda model: model[1].bfloat16(),
    "'1.bias' has left": lambda model: delattr(model[1], "bias") or setattr(model[1], "bias", None),
    "'2.weight' has left": lambda model: model.__delitem__(2),
    "'3.weight' has come": lambda model: model.append(nn.Linear(1, 1)),
    "'1.scale' has come": lambda model: model[1].register_parameter("scale", Parameter(torch.ones(1))),
    "'1.weight' was float32[2, 3] on cpu and is float32[3, 2]": lambda model: setattr(
        model[1].weight, "data", torch.zeros(3, 2)
    ),
}


@pytest.mark.parametrize("change", TAKEN_UP)
def test_what_is_of_the_same_form_is_taken_up(change: Change) -> None:
    model = net()
    trained = Trained(model)
    change(model)
    assert trained.look() is None
    now = dict(model.named_parameters())
    assert list(trained) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert all(trained[name] is now[name] for name in trained)
    assert trained.objects == [now[name] for name in trained] or all(
        one is now[name] for one, name in zip(trained.objects, trained, strict=True)
    )


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_of_another_form_is_refused_by_name(words: str) -> None:
    model = net()
    trained = Trained(model)
    REFUSED[words](model)
    for _ in range(2):  # it stays refused
        error = trained.look()
        assert error is not None and words in str(error)


def test_what_was_mended_is_taken_up_again() -> None:
    model = net()
    trained = Trained(model)
    model.double()
    assert trained.look() is not None
    model.float()
    assert trained.look() is None


def test_objects_are_another_list_when_one_is_another_object() -> None:
    model = net()
    trained = Trained(model)
    before = trained.objects
    other_data(model)
    trained.look()
    assert all(one is other for one, other in zip(trained.objects, before, strict=True))
    assigned(model)
    trained.look()
    assert not any(one is other for one, other in zip(trained.objects, before, strict=True))


WRITES: dict[str, Change] = {
    "data in place": lambda model: model[1].bias.data.mul_(2),
    "no_grad": lambda model: torch.no_grad()(lambda: model[1].bias.add_(1))(),
    "one element": lambda model: model[0].weight.data.view(-1)[5].zero_(),
    "a sign of zero": lambda model: model[1].bias.data.copy_(-model[1].bias.data),
    "new memory": lambda model: setattr(model[1].bias, "data", model[1].bias.data + 1),
    "another format": lambda model: (other_format(model), model[0].weight.data.mul_(2)),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_digest_knows_each_way_to_write(name: str) -> None:
    model = net()
    trained = Trained(model)
    before = trained.digest()
    assert trained.digest() == before
    WRITES[name](model)
    trained.look()
    assert trained.digest() != before


def test_whose_parameter_it_is_is_asked_of_the_model_as_it_is() -> None:
    model = net()
    trained = Trained(model)
    old = model[1].weight
    assert trained.name_of({old}) == "1.weight"
    assert trained.name_of({model[2].weight}) == "2.weight"  # not trained, but of the model
    other_module(model)
    assert trained.name_of({old}) is None
    model.append(nn.Linear(1, 1))
    assert trained.name_of({model[3].bias}) == "3.bias"
