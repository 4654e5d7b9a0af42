"""What a report says of the network that a run went over, and of the bytes that were counted there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tweed.report.plots import BYTES, LINK_BYTES, Quantity
from tweed.testbed import Counters, Network
from tweed.train.results import Side


def words(facts: Mapping[str, Any]) -> str:
    """The network in a few words, for titles.

    Args:
      facts: contents of `run.json`.
    """
    if network := _asked(facts):
        return f"Network: {network.words}"
    if facts["unshaped"]:
        return "Network NOT shaped: none could be built here"
    return "Network not shaped" if facts["one_host"] else "Network not known"


def sent(facts: Mapping[str, Any]) -> Quantity:
    """What stands for the bytes sent: measured in a testbed, elsewhere computed."""
    return LINK_BYTES if _asked(facts) else BYTES


def notes(facts: Mapping[str, Any], links: Side) -> list[str]:
    """What to keep in mind about the network.

    Args:
      links: lines of `links.jsonl`.
    """
    network = _asked(facts)
    if network is None:
        return [_without(facts), _COMPUTED]
    return [f"Each worker had a network namespace of its own: {network.words}. {_HUB}", _MEASURED] + [
        _side(title, [line for line in links if line["side"] == label])
        for label, title in facts["sides"].items()
        if any(line["side"] == label for line in links)
    ]


_HUB = (
    "The rate holds in each direction; each packet between two workers, acknowledgements too, is lost with "
    "that probability. All sides ran over equal networks, made anew for each."
)
_COMPUTED = (
    "Bytes sent are computed, by the same rule for every side: 2 (N − 1) / N of the buffers that went "
    "into all-reduces, which is what a ring sends, and half of that of broadcasts. Headers and "
    "retransmissions are not in them."
)
_MEASURED = (
    "Bytes sent are what the workers' links have counted in training, mean over workers: all that left "
    "them, with headers and retransmissions."
)


def _asked(facts: Mapping[str, Any]) -> Network | None:
    text = facts["settings"]["network"]
    return None if text is None else Network.parse(text)


def _without(facts: Mapping[str, Any]) -> str:
    if facts["unshaped"]:
        return f"The network was NOT shaped, though a shaped one was asked for: {facts['unshaped']}"
    return "The network was not shaped by tweed: no link was made slow or lossy."


def _side(title: str, links: Side) -> str:
    """What the links of one side dropped, and whether they carried what they should have."""
    total = sum((Counters(**link) for line in links for link in line["counted"]), Counters())
    findings = [finding for line in links for finding in line["findings"]]
    checked = f"NOT as it should be: {'; '.join(findings)}" if findings else "nothing went round the links"
    return (
        f"{title}: of {total.sent_packets:,} packets, {total.lost_packets:,} were lost by chance and "
        f"{total.overflowed_packets:,} to full queues. The links' bytes beside those of the all-reduces: "
        f"{checked}."
    )
