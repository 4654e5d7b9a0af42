"""Rows to Markdown: the tables of docs/benchmarks.md. A section is a function of rows, and a line below."""

from __future__ import annotations

from collections.abc import Sequence

from bench import (
    aggregates,
    behind_nat,
    compared,
    emulated,
    even_rate,
    factors,
    flower,
    foreseen,
    goals,
    hub_links,
    linked,
    live_hub,
    loops,
    machine,
    memory,
    neighbours,
    next_forward,
    on_ray,
    one_raylet,
    pictures,
    quant,
    regrouped,
    sent,
    slow_links,
    sparse,
    tabled,
    tasks,
    urgent,
    virtual_hub,
)
from bench.networks import PART
from bench.run import Row
from bench.units import grid

BEGIN = "<!-- tables: begin. Written by `python -m bench`, not by hand. -->"
END = "<!-- tables: end -->"


def page(rows: Sequence[Row]) -> str:
    """All sections for which there are rows."""
    return "\n\n".join(filter(None, (section(rows) for section in _SECTIONS)))


def put(document: str, tables: str) -> str:
    """Replaces what is between the markers. Raises: ValueError if one is missing."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document lacks a marker; it needs the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def _machine(rows: Sequence[Row]) -> str:
    """The environment of the run, and of each later one that measured some parts anew."""
    return "\n\n".join(_environment(row) for row in rows if row["part"] == "environment")


def _environment(env: Row) -> str:
    title = f"Measured anew: {env['only']}" if "only" in env else "The machine"
    body = [(name.replace("_", " "), str(value)) for name, value in env.items() if name != "part"]
    warning = machine.warning(env)
    bold = f"\n\n**{warning[0].upper()}{warning[1:]}.**" if warning else ""
    return f"## {title}\n\n{grid(('machine', ''), body)}{bold}"


_OTHERS = ("reduce_scatter_tensor", "all_gather_into_tensor", "broadcast", "all_to_all_single")
_SECTIONS = (
    _machine,
    goals.goals,
    compared.beside("All-reduce on one host", "all_reduce"),
    compared.openmpi,
    compared.in_a_row,
    memory.distance,
    memory.bandwidths,
    quant.kernels,
    quant.beside,
    compared.beside("Other collectives on one host", *_OTHERS),
    compared.beside("Over TCP, loopback", "all_reduce over TCP"),
    linked.between_namespaces,
    linked.beside_iperf3,
    sent.messages,
    sent.shared,
    emulated.accuracy,
    emulated.reach,
    compared.cpu("all_reduce", "all_reduce over TCP", PART),
    sparse.top_k,
    sparse.kernels,
    aggregates.beside,
    tabled.training,
    factors.table,
    even_rate.table,
    tabled.memory,
    tabled.strangers,
    tabled.schedules,
    tabled.simulator,
    virtual_hub.table,
    flower.beside,
    hub_links.table,
    on_ray.beside,
    live_hub.table,
    compared.beside("Groups made anew", regrouped.PART),
    behind_nat.table,
    urgent.table,
    slow_links.table,
    next_forward.table,
    neighbours.table,
    one_raylet.table,
    loops.table,
    tasks.table,
    pictures.builders,
    foreseen.schedules,
)
