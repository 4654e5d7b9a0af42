"""Options: arguments win over the environment, and what is impossible is refused in words."""

from __future__ import annotations

import pytest

from tweed.errors import UsageError
from tweed.exchange.engine import GroupRequest
from tweed.torch import Options
from tweed.transport import Ltp


def test_defaults() -> None:
    assert Options.resolve(None, {}) == Options(transport="auto", binding="auto")


def test_environment_fills_gaps() -> None:
    env = {"TWEED_STREAMS": "3", "TWEED_TRANSPORT": "tcp", "TWEED_SCHEDULE": "all_reduce=ring, reduce=tree"}
    options = Options.resolve(Options(transport="shm"), env)
    assert options.transport == "shm"
    assert options.streams == 3
    assert options.schedule == {"all_reduce": "ring", "reduce": "tree"}


def test_ltp_by_name_has_the_usual_settings() -> None:
    assert Options.resolve(None, {"TWEED_TRANSPORT": "ltp"}).ltp == Ltp()
    given = Options.resolve(Options(transport=Ltp(fraction=0.9), server=0), {"TWEED_SERVER": "2"})
    assert given.ltp == Ltp(fraction=0.9)
    assert given.server == 0
    assert Options.resolve(None, {}).ltp is None


def test_transport_and_server_decide_how_sums_are_taken() -> None:
    assert Options.resolve(None, {}).overrules() == {}
    assert Options.resolve(Options(transport="ltp"), {}).overrules()["all_reduce"] == "pairwise"
    served = Options.resolve(Options(transport="ltp", server=1, schedule={"broadcast": "ring"}), {})
    assert served.overrules()["all_reduce"] == "star"
    assert served.overrules()["broadcast"] == "ring"


def test_what_a_strategy_asks_for_overrules_the_environment() -> None:
    found = Options.resolve(
        GroupRequest(Ltp(fraction=0.9), 1), {"TWEED_TRANSPORT": "tcp", "TWEED_STREAMS": "2"}
    )
    assert (found.transport, found.server, found.streams) == (Ltp(fraction=0.9), 1, 2)


def test_other_backends_options_are_ignored() -> None:
    assert Options.resolve(object(), {}) == Options.resolve(None, {})


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"TWEED_TRANSPORT": "udp"}, "transport must be one of auto, shm, tcp, ltp, not 'udp'"),
        ({"TWEED_STREAMS": "many"}, "TWEED_STREAMS must be a whole number, not 'many'"),
        ({"TWEED_SERVER": "the first"}, "TWEED_SERVER must be a whole number, not 'the first'"),
        ({"TWEED_SERVER": "-1"}, "server must be a rank of the group"),
        ({"TWEED_WIRE_ONLY": "perhaps"}, "TWEED_WIRE_ONLY must be 0 or 1"),
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
