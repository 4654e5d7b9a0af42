"""Flat builders in which all ranks write to one, or each to every other: few steps, for short messages."""

from __future__ import annotations

from dataclasses import replace

from tweed._core import Topology
from tweed.collective.chooser import NETWORK
from tweed.collective.fitted.base import Fitted
from tweed.collective.fitted.routed import on_a_network


def _refuses(topology: Topology) -> str:
    senders, most = topology.ranks - 1, NETWORK.fan_in
    return f"{senders} ranks would send to one at a time, more than {most}" if senders > most else ""


def _straight(name: str, *collectives: str) -> Fitted:
    return replace(on_a_network(name, *collectives), refuses=_refuses)


exchange = _straight("exchange", "all_reduce")
pairwise = _straight("pairwise", "all_reduce", "reduce_scatter", "all_gather")
star = _straight("star", "all_reduce", "reduce_scatter", "all_gather")
binomial_tree = on_a_network("binomial_tree", "all_reduce")
