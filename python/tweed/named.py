"""Strategies by their names, for command lines and configuration files."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any

from tweed.errors import StrategyError, UsageError
from tweed.recipes import RECIPES
from tweed.strategy import Strategy

_NAMED = {make.__name__: make for make in RECIPES}
_CALL = re.compile(r"(?P<name>\w+)\s*(?:\((?P<inside>.*)\)|:(?P<after>.*))?")


def named_strategies() -> list[str]:
    """The names that `named_strategy` knows, each with its settings, such as "local_steps(every=8)"."""
    return [f"{name}({_settings(make)})" for name, make in _NAMED.items()]


def named_strategy(text: str) -> Strategy:
    """The strategy that `text` names, for command lines and configuration files.

    Args:
      text: a name, with settings if wanted: "every_step", "local_steps", "local_steps:8", "local_steps(8)" or
        "local_steps(every=8)". Settings are literals, parted by commas.

    Raises: StrategyError for an unknown name or settings that do not fit it; the text lists what is known.
    """
    call = _CALL.fullmatch(text.strip())
    if call is None or call["name"] not in _NAMED:
        raise StrategyError(f"no strategy is named {text!r}. Known are: {', '.join(named_strategies())}")
    make = _NAMED[call["name"]]
    try:
        args, kwargs = _literals(call["inside"] or call["after"] or "")
        inspect.signature(make).bind(*args, **kwargs)
    except (TypeError, ValueError, SyntaxError) as error:
        raise StrategyError(f"{text!r}: {error}. Write {call['name']}({_settings(make)})") from error
    return _made(text, make, args, kwargs)


def _made(text: str, make: Callable[..., Strategy], args: list[Any], kwargs: dict[str, Any]) -> Strategy:
    try:
        return make(*args, **kwargs)
    except UsageError as error:
        raise StrategyError(f"{text!r}: {error}") from error


def _settings(make: Callable[..., Strategy]) -> str:
    settings = inspect.signature(make).parameters.values()
    return ", ".join(str(setting.replace(annotation=setting.empty)) for setting in settings)


def _literals(text: str) -> tuple[list[Any], dict[str, Any]]:
    call = ast.parse(f"_({text})", mode="eval").body
    if not isinstance(call, ast.Call):
        raise ValueError("settings are values parted by commas")
    args = [ast.literal_eval(arg) for arg in call.args]
    return args, {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
