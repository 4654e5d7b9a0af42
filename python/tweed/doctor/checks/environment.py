"""Variables that torchrun, torch and tweed read: half sets, impossible values, misspelt names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from tweed.doctor.finding import Finding, Level
from tweed.errors import UsageError
from tweed.torch.options import Options, known_variables, unknown_variables

_RENDEZVOUS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def gather() -> Mapping[str, str]:
    """The environment's variables that count here. Secrets are left out."""
    names = (*_RENDEZVOUS, "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    hidden = ("TWEED_SECRET",)
    wanted = {name: value for name, value in os.environ.items() if name in names or name.startswith("TWEED_")}
    return {name: "..." if name in hidden else value for name, value in wanted.items()}


def judge(env: Mapping[str, str]) -> Iterator[Finding]:
    """Says what is wrong, or that nothing is."""
    found = [*_misspelt(env), *_values(env), *_half(env), *_numbers(env)]
    started = "started by torchrun or the like" if env.get("RANK") else "not started by torchrun"
    yield from found or [Finding(Level.OK, f"{started}; nothing is set wrongly")]


def _misspelt(env: Mapping[str, str]) -> Iterator[Finding]:
    for name, close in unknown_variables(env).items():
        what = f"{name} is set, and tweed knows no such variable"
        if close:
            yield Finding(
                Level.ERROR,
                f"{what}; did you mean {close}?",
                f"export {close}={env[name]}; unset {name}",
            )
        else:
            yield Finding(Level.WARNING, f"{what}; it knows {', '.join(known_variables())}", f"unset {name}")


def _values(env: Mapping[str, str]) -> Iterator[Finding]:
    try:
        Options.resolve(None, env)
    except UsageError as error:
        yield Finding(
            Level.ERROR, f"a variable of tweed's has no possible value: {error}", "correct or unset it"
        )


def _half(env: Mapping[str, str]) -> Iterator[Finding]:
    there = [name for name in _RENDEZVOUS if env.get(name)]
    if not there or there in (["MASTER_ADDR"], ["MASTER_PORT"], ["MASTER_ADDR", "MASTER_PORT"]):
        return
    missing = [name for name in _RENDEZVOUS if not env.get(name)]
    if missing:
        what = f"{', '.join(there)} set without {', '.join(missing)}: init_process_group needs all four"
        fix = (
            f"start with torchrun, which sets them; or: export {' '.join(f'{name}=...' for name in missing)}"
        )
        yield Finding(Level.ERROR, what, f"{fix}; or, to train on this host alone: unset {' '.join(there)}")


def _numbers(env: Mapping[str, str]) -> Iterator[Finding]:
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "LOCAL_WORLD_SIZE"):
        if env.get(name) and not env[name].isdigit():
            yield Finding(Level.ERROR, f"{name}={env[name]} is no whole number", f"export {name}=NUMBER")
    rank, size, port = (env.get(name, "") for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    if rank.isdigit() and size.isdigit() and int(rank) >= int(size):
        what = f"RANK={rank} and WORLD_SIZE={size}: ranks go from 0 to WORLD_SIZE - 1"
        yield Finding(Level.ERROR, what, "give each process another RANK, from 0 on")
    if port.isdigit() and not 0 < int(port) < 65536:
        yield Finding(Level.ERROR, f"MASTER_PORT={port} is no port", "export MASTER_PORT=29500")
