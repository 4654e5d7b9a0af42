"""`engine.py` says in Python what `csrc/engine.h` says in C."""

from __future__ import annotations

import re

import pytest
import torch
import torch.distributed as dist

from tweed.torch import engine
from tweed.torch.build import SOURCES

HEADER = (SOURCES / "engine.h").read_text()


def numbers(prefix: str = "TWEED_") -> dict[str, int]:
    """The header's enumerators."""
    return {name: int(value) for name, value in re.findall(rf"\b{prefix}(\w+) = (\d+)", HEADER)}


def fields(struct: str) -> list[str]:
    """Names of a struct's members, functions included, in order."""
    body = re.search(r"typedef struct \{([^}]*)\} " + struct + ";", HEADER)
    assert body is not None
    text = re.sub(r"//.*", "", body.group(1))
    return re.findall(r"\(\*(\w+)\)\(|(\w+);", text) and [
        name or plain for name, plain in re.findall(r"\(\*(\w+)\)\([^;]*;|(\w+);", text)
    ]


@pytest.mark.parametrize(
    ("mirror", "struct"),
    [(engine.Segment, "tweed_segment"), (engine.Request, "tweed_request"), (engine.Table, "tweed_table")],
)
def test_members_are_in_order(mirror: type, struct: str) -> None:
    assert [name for name, _ in mirror._fields_] == fields(struct)


def test_numbers() -> None:
    header = numbers()
    assert engine.ABI == int(re.search(r"TWEED_ABI (\d+)u", HEADER).group(1))
    for member in (*engine.Operation, *engine.Status):
        assert header[member.name] == member.value
    assert header["BYTES"] == engine.BYTES


def test_dtypes() -> None:
    short = {"float": "F", "bfloat": "BF", "int": "I", "uint": "U"}
    for dtype, number in engine.DTYPES.items():
        kind, bits = re.fullmatch(r"torch\.([a-z]+)(\d*)", str(dtype)).groups()
        name = "BOOL" if dtype == torch.bool else short[kind] + bits
        assert numbers()[name] == number


def test_reduce_operators_have_torchs_numbers() -> None:
    names = {"PROD": "PRODUCT"}
    for name in ("SUM", "AVG", "PROD", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"):
        operator = getattr(dist.ReduceOp, names.get(name, name))
        assert numbers()[name] == int(operator.value if hasattr(operator, "value") else operator)


def test_every_status_but_two_is_an_error() -> None:
    assert set(engine.ERRORS) == set(engine.Status) - {engine.Status.OK, engine.Status.PENDING}
