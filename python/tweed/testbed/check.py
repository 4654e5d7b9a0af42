"""Whether what links have counted fits what was to be sent over them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tweed.testbed.counters import Counters

#: Ethernet, IP and TCP around a full packet's payload of 1448 bytes. A packet of headers alone acknowledges.
_HEADER_BYTES, _PAYLOAD_BYTES = 66, 1448
#: Of what was sent, the share that may have been sent again.
_AGAIN = 0.25
#: What may be sent beside the payload: meetings, stores, figures.
ASIDE_BYTES = 2**20


def findings(
    expected: Mapping[str, int], counted: Mapping[str, Counters], aside_bytes: int = ASIDE_BYTES
) -> list[str]:
    """Says whose links did not carry what they should have; nothing if all is well.

    Args:
      expected: by name ("rank 0", "all workers"), the payload in bytes that its schedules have it send:
        `Schedule.cost(numbytes).sent`.
      counted: by the same names, what the links have counted meanwhile.
      aside_bytes: what may have been sent beside.

    Links that carried less than the payload were gone round: by shared memory, or over another interface.
    Those that carried more than payload, headers, acknowledgements, `aside_bytes` and a quarter on top were
    used for something else, or for the same again and again.
    """
    said = [_finding(who, payload, counted[who], aside_bytes) for who, payload in expected.items()]
    return [finding for finding in said if finding]


def _finding(who: str, payload: int, link: Counters, aside_bytes: int) -> str:
    story = f"{who}: {_mb(payload)} to send, {_mb(link.sent_bytes)} over the links"
    if link.sent_bytes < payload:
        return f"{story}. The rest went round them"
    most = _most(payload, link.received_packets) + aside_bytes
    return f"{story}. At most {_mb(most)} are explained" if link.sent_bytes > most else ""


def _most(payload: int, received_packets: int) -> int:
    in_packets = payload * (_PAYLOAD_BYTES + _HEADER_BYTES) / _PAYLOAD_BYTES
    return round(in_packets * (1 + _AGAIN)) + received_packets * _HEADER_BYTES


def _mb(numbytes: int) -> str:
    return f"{numbytes / 1e6:,.2f} MB"
