"""Strategies by their names, for command lines and configuration files."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from tweed.errors import StrategyError, UsageError
from tweed.recipes import RECIPES
from tweed.strategy import Strategy

_NAMED = {make.__name__: make for make in RECIPES}
_JOINED = re.compile(r"\s*\+\s*(?=[a-z])")  # not the plus of 1e+3
_WHEN = re.compile(r"^When: (.*)$", re.MULTILINE)
_CALL = re.compile(r"(?P<name>\w+)\s*(?:\((?P<inside>.*)\)|:(?P<after>.*))?")


def named_strategies() -> list[str]:
    """The names that `named_strategy` knows, each with its settings, such as "local_steps(every=8)"."""
    return [f"{name}({_settings(make)})" for name, make in _NAMED.items()]


def described_strategies() -> list[tuple[str, str, str]]:
    """Each named strategy: its name with settings, what it does, and when to take it."""
    texts = [inspect.getdoc(make) or "" for make in _NAMED.values()]
    what = [" ".join(text.split("\n\n")[0].split()) for text in texts]
    when = [found[1] if (found := _WHEN.search(text)) else "" for text in texts]
    return list(zip(named_strategies(), what, when, strict=True))


def named_strategy(text: str) -> Strategy:
    """The strategy that `text` names, for command lines and configuration files.

    Args:
      text: a name, with settings if wanted: "every_step", "local_steps", "local_steps:8", "local_steps(8)" or
        "local_steps(every=8)". Settings are literals, parted by commas. Several are joined by "+", such as
        "sparse(0.05) + ltp(server=0)": the stages of all of them, where each stage may be set by one.

    Raises: StrategyError for an unknown name or settings that do not fit it, the text lists what is known; or
      if two of several names set the same stage, or do not go together.
    """
    first, *others = _JOINED.split(text)
    strategy = _one(first)
    for name in others:
        strategy = _joined(strategy, _one(name), text)
    return strategy


def _joined(strategy: Strategy, other: Strategy, text: str) -> Strategy:
    """What both set. Raises StrategyError if both set the same stage."""
    plain = Strategy()
    changed = {}
    for stage in fields(Strategy):
        mine, theirs, default = (getattr(one, stage.name) for one in (strategy, other, plain))
        if default not in (mine, theirs) and mine != theirs:
            raise StrategyError(f"{text!r}: {stage.name} is both {mine!r} and {theirs!r}; take one of them")
        if theirs != default:
            changed[stage.name] = theirs
    return replace(strategy, **changed)


def _one(text: str) -> Strategy:
    call = _CALL.fullmatch(text.strip())
    if call is None or call["name"] not in _NAMED:
        near = difflib.get_close_matches(call["name"] if call else text, _NAMED, 1)
        meant = f"Did you mean {near[0]}({_settings(_NAMED[near[0]])})? " if near else ""
        raise StrategyError(
            f"no strategy is named {text!r}. {meant}Known are: {', '.join(_NAMED)}. `tweed strategies` "
            "describes them"
        )
    make = _NAMED[call["name"]]
    try:
        args, kwargs = _literals(call["inside"] or call["after"] or "")
        inspect.signature(make).bind(*args, **kwargs)
    except (ValueError, SyntaxError):
        why = "settings are numbers, True, False, None or quoted words"
    except TypeError as error:
        why = str(error)
    else:
        return _made(text, make, args, kwargs)
    raise StrategyError(f"{text!r}: {why}. Write {call['name']}({_settings(make)})")


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
