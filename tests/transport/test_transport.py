"""Settings of transports: what is possible, what is refused, and the table."""

from __future__ import annotations

import dataclasses
import math
import pickle
import subprocess
import sys
from typing import Any

import pytest

from tweed.errors import UsageError
from tweed.transport import TRANSPORTS, Ltp, Transport, named

every_transport = pytest.mark.parametrize("name", TRANSPORTS)


@every_transport
def test_a_row_keeps_the_contract(name: str) -> None:
    found = named(name)
    assert isinstance(found, Transport)
    assert found.name == name
    assert isinstance(found.may_lose, bool)


@every_transport
def test_a_transport_is_a_frozen_value(name: str) -> None:
    found: Any = named(name)
    assert type(found)() == found
    assert pickle.loads(pickle.dumps(found)) == found
    assert hash(type(found)()) == hash(found)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(found, dataclasses.fields(found)[0].name, None)


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="no transport 'pigeon'; there are ltp"):
        named("pigeon")


@pytest.mark.parametrize(
    "setting",
    [
        {"fraction": 0},
        {"fraction": 1.01},
        {"fraction": math.nan},
        {"fraction": True},
        {"fraction": "0.9"},
        {"slack_s": -0.001},
        {"slack_s": math.inf},
        {"slack_s": math.nan},
        {"divide_by": "none"},
        {"return_lost": "yes"},
        {"lossless": None},
        {"epoch_steps": 0},
        {"epoch_steps": 1.5},
        {"epoch_steps": True},
        {"cipher": "clear"},
    ],
    ids=str,
)
def test_ltp_refuses_what_cannot_be_and_names_it(setting: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"ltp: {next(iter(setting))}="):
        Ltp(**setting)


@pytest.mark.parametrize("setting", [{"fraction": 1}, {"slack_s": 0}, {"epoch_steps": 1}], ids=str)
def test_ltp_takes_the_ends_of_its_ranges(setting: dict[str, Any]) -> None:
    Ltp(**setting)


def test_ltp_may_lose_parts_unless_it_is_lossless() -> None:
    assert Ltp().may_lose
    assert not Ltp(lossless=True).may_lose


def test_settings_are_light_to_import() -> None:
    code = "import sys, tweed.transport; sys.exit('torch' in sys.modules or 'tweed._core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
