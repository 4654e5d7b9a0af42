"""Functions by their names, `module:function`: what a task runs crosses to other processes as text."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from typing import Any

from tweed.errors import UsageError

_NAME = re.compile(r"(?P<module>\w+(?:\.\w+)*):(?P<function>\w+)")
_REMEDY = "define it with `def` at the top of a module that workers can import"


def name_of(function: Callable[..., Any] | str) -> str:
    """The name by which workers find this function.

    Args:
      function: one at the top of a module, or its name.

    Raises: UsageError for lambdas, nested functions, methods, and what has no name or is not found by it.

    Example:
      >>> import math
      >>> name_of(math.sqrt)
      'math:sqrt'
    """
    if isinstance(function, str):
        found(function)
        return function
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name:
        raise _unnamed(f"{function!r} has no name")
    if why := _why_not(name):
        raise _unnamed(f"{module}:{name} {why}")
    if module == "__main__" and not hasattr(sys.modules[module], "__file__"):
        raise _unnamed(f"{name} is defined in an interactive session, where no other process finds it")
    if found(f"{module}:{name}") is not function:
        raise _unnamed(f"{module}:{name} is another function by now")
    return f"{module}:{name}"


def found(name: str) -> Callable[..., Any]:
    """The function of this name. Raises UsageError if there is none."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(f"{name!r} is no name of a function: give module:function, such as 'math:sqrt'")
    try:
        module = importlib.import_module(match["module"])
    except ModuleNotFoundError as error:
        raise UsageError(f"{name!r} is not found: {error}. {_REMEDY.capitalize()}") from error
    function: Any = getattr(module, match["function"], None)
    if not callable(function):
        raise UsageError(f"{name!r} is not found: the module has no such function. {_REMEDY.capitalize()}")
    return function  # type: ignore[no-any-return]


def _why_not(name: str) -> str | None:
    """Why a function of this qualified name is not at the top of its module; None: it is."""
    if "<lambda>" in name:
        return "is a lambda"
    if "<locals>" in name:
        return "is a function within a function"
    return "is a method" if "." in name else None


def _unnamed(what: str) -> UsageError:
    return UsageError(f"tasks reach workers by the name of their function, and {what}: {_REMEDY}")
