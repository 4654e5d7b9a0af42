"""Learners as their class by name and their parameters: so they reach workers, and nothing is unpickled.

    Ridge(alpha=0.5)   ->   {"tweed:class": "sklearn.linear_model._ridge:Ridge",
                             "tweed:parameters": {"alpha": 0.5, ...}}

Parameters may be learners themselves, as the steps of a pipeline are, and functions that have a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tweed.errors import UsageError
from tweed.exchange.encoding import packed
from tweed.rng import splitmix64
from tweed.workloads.tasks.functions import found, name_of


@dataclass(frozen=True, slots=True)
class Learner:
    """A learner of scikit-learn's interface, by the name of its class.

    Attributes:
      name: such as "sklearn.linear_model:LassoCV"; at the top of a module that workers can import.
      parameters: for its constructor. A `random_state` that is not given is drawn by the key of each fit.

    Example:
      >>> Learner("sklearn.linear_model:Ridge", {"alpha": 0.5})
      Learner(name='sklearn.linear_model:Ridge', parameters={'alpha': 0.5})
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


def plain(learner: Any, where: str) -> Any:
    """A learner as plain values, which `made` makes it of again.

    Args:
      learner: a `Learner`, or an estimator, of which its class and its parameters count.
      where: which one it is, for errors.

    Raises: UsageError for a learner that cannot be sent.
    """
    try:
        if not (isinstance(learner, Learner) or _is_estimator(learner)):
            raise UsageError(
                f"{learner!r} is no learner: give an estimator with fit and predict, or a Learner"
            )
        value = _plain(learner)
        packed(value, classes=())
    except (UsageError, ValueError, RecursionError) as error:
        raise UsageError(f"the learner {where} cannot be sent to workers: {error}") from None
    return value


def made(value: Any) -> Any:
    """The learner, or parameter, of these plain values.

    Raises: UsageError if no class of that name is found; what its constructor raises.
    """
    match value:
        case {"tweed:class": name, "tweed:parameters": parameters}:
            return found(name)(**{key: made(one) for key, one in parameters.items()})
        case {"tweed:function": name}:
            return found(name)
        case dict():
            return {key: made(one) for key, one in value.items()}
        case list():
            return [made(one) for one in value]
        case tuple():
            return tuple(made(one) for one in value)
    return value


def gives_classes(value: Any, where: str) -> bool:
    """Whether the learner of these plain values is a classifier, which gives probabilities.

    Args: as `plain` has them.

    Raises: UsageError for a learner that cannot be made, fitted, or asked for what is needed.
    """
    from sklearn.base import is_classifier

    try:
        learner = made(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the learner {where} cannot be made: {error}") from None
    has_classes = hasattr(learner, "fit") and bool(is_classifier(learner))
    for method in ("get_params", "fit", "predict_proba" if has_classes else "predict"):
        if not hasattr(learner, method):
            needed = "a classifier with predict_proba" if has_classes else "an estimator with fit and predict"
            raise UsageError(f"the learner {where}, {type(learner).__name__}, has no {method}: give {needed}")
    return has_classes


def seeded(learner: Any, seed: int) -> Any:
    """The learner with a seed for each `random_state` in it that has none, nested ones too.

    Args:
      seed: 32 bits.
    """
    states = sorted(
        (key, value)
        for key, value in learner.get_params(deep=True).items()
        if (key == "random_state" or key.endswith("__random_state")) and value is None
    )
    seeds = {key: splitmix64(seed << 16 | number) >> 32 for number, (key, _) in enumerate(states)}
    return learner.set_params(**seeds) if seeds else learner


def _plain(value: Any) -> Any:
    match value:
        case Learner():
            found(value.name)
            return _constructed(value.name, value.parameters)
        case dict():
            return {key: _plain(one) for key, one in value.items()}
        case list():
            return [_plain(one) for one in value]
        case tuple() if type(value) is tuple:
            return tuple(_plain(one) for one in value)
    if _is_estimator(value):
        return _constructed(name_of(type(value)), value.get_params(deep=False))
    return {"tweed:function": name_of(value)} if callable(value) else value


def _constructed(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {"tweed:class": name, "tweed:parameters": {key: _plain(one) for key, one in parameters.items()}}


def _is_estimator(value: Any) -> bool:
    return hasattr(value, "get_params") and hasattr(value, "fit") and not isinstance(value, type)
