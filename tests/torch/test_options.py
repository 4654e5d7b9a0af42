"""Options: arguments win over the environment, and what is impossible is refused in words."""

from __future__ import annotations

import pytest

from tweed.errors import UsageError
from tweed.torch import Options


def test_defaults() -> None:
    assert Options.resolve(None, {}) == Options(transport="auto", binding="auto")


def test_environment_fills_gaps() -> None:
    env = {"TWEED_STREAMS": "3", "TWEED_TRANSPORT": "tcp", "TWEED_SCHEDULE": "all_reduce=ring, reduce=tree"}
    options = Options.resolve(Options(transport="shm"), env)
    assert options.transport == "shm"
    assert options.streams == 3
    assert options.schedule == {"all_reduce": "ring", "reduce": "tree"}


def test_other_backends_options_are_ignored() -> None:
    assert Options.resolve(object(), {}) == Options.resolve(None, {})


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"TWEED_TRANSPORT": "udp"}, "transport must be one of auto, shm, tcp, not 'udp'"),
        ({"TWEED_STREAMS": "many"}, "TWEED_STREAMS must be a whole number, not 'many'"),
        ({"TWEED_STREAMS": "0"}, "streams must be at least 1"),
        ({"TWEED_SCHEDULE": "ring"}, "TWEED_SCHEDULE must look like"),
        ({"TWEED_DEADLINE": "soon"}, "TWEED_DEADLINE must be a number of seconds, not 'soon'"),
        ({"TWEED_DEADLINE": "0"}, "deadline must be a number of seconds above 0"),
        ({"TWEED_DEADLINE": "nan"}, "deadline must be a number of seconds above 0"),
        ({"TWEED_DIAL_ONLY": "perhaps"}, "TWEED_DIAL_ONLY must be 0 or 1, not 'perhaps'"),
        ({"TWEED_BINDING": "rust"}, "binding must be one of"),
    ],
)
def test_impossible_values(env: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Options.resolve(None, env)


def test_a_secret_is_not_shown() -> None:
    options = Options.resolve(None, {"TWEED_SECRET": "open sesame, open sesame", "TWEED_DIAL_ONLY": "1"})
    assert options.secret == "open sesame, open sesame"
    assert options.dial_only is True
    assert "sesame" not in repr(options)
