"""A network in words for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tweed.testbed import units
from tweed.testbed.link import Link


def words(network: Link, hosts: Mapping[int, Link], congestion: str) -> str:
    """ "100 Mbit/s per worker, 20 ms of delay, 0.1 % of packets lost, cubic"."""
    rate = "not slowed" if network.rate_bits is None else f"{units.spoken_rate(network.rate_bits)} per worker"
    said = [rate, *_rest(network)]
    if not network.loss:
        said.append("no loss")
    said += [f"rank {rank}: {' and '.join(_all(link))}" for rank, link in hosts.items()]
    return ", ".join([*said, congestion])


def _all(link: Link) -> Iterator[str]:
    if link.rate_bits is not None:
        yield units.spoken_rate(link.rate_bits)
    yield from _rest(link)


def _rest(link: Link) -> Iterator[str]:
    """What is said of a link but its rate."""
    if link.queue_ms is not None:
        yield f"queues of {units.plain(link.queue_ms)} ms"
    if link.queue_bytes is not None:
        yield f"queues of {units.spoken_size(link.queue_bytes)}"
    if link.delay_ms is not None:
        jitter = f" ± {units.plain(link.jitter_ms)}" if link.jitter_ms else ""
        yield f"{units.plain(link.delay_ms)}{jitter} ms of delay"
    if link.loss is not None:
        bursts = f" in bursts of {units.plain(link.burst)}" if link.burst else ""
        yield f"{units.percent(link.loss)} % of packets lost{bursts}"
    if link.reorder is not None:
        yield f"{units.percent(link.reorder)} % overtaken"
    if link.duplicate is not None:
        yield f"{units.percent(link.duplicate)} % twice"
    for name, way in (("up", link.up), ("down", link.down)):
        if way is not None:
            yield f"{name} {' and '.join(_all(way))}"
