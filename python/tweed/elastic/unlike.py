"""Whose fault it is that members called unlike collectives. Pure.

Each member says what its last call was, in a line that is the same at all that made the same call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """What a member tells the others about its last call in the group that broke.

    Attributes:
      what: the call; empty: it has called nothing since the group was made.
      since: the first epoch that this member was in.
      members: of the group.
      unlike: the text of the error, where others called something else; empty: it ended otherwise.
    """

    what: str = ""
    since: int = 0
    members: tuple[str, ...] = ()
    unlike: str = ""


def at_fault(calls: Mapping[int, Call]) -> list[int] | None:
    """Ranks whose call is not that of most, if need be of most of those that were there first. None: it
    cannot be told.

    Example:
      >>> at_fault({0: Call("a sum", 1), 1: Call("a check", 1), 2: Call("a sum", 4)})
      [1]
      >>> at_fault({0: Call("a sum", 1), 1: Call("a check", 4)})
      [1]
      >>> at_fault({0: Call("a sum", 1), 1: Call("a check", 1)}) is None
      True
    """
    made = {rank: call for rank, call in calls.items() if call.what}
    for last in sorted({call.since for call in made.values()}, reverse=True):
        heard = [call.what for call in made.values() if call.since <= last]
        most, count = Counter(heard).most_common(1)[0]
        if 2 * count > len(heard):
            return [rank for rank, call in made.items() if call.what != most]
    return None


def are_over(calls: Mapping[int, Call], members: Collection[str]) -> bool:
    """Whether these members, who tell each other of their calls, may go on: they called the same."""
    unlike = [call for call in calls.values() if call.unlike]
    gone = {key for call in unlike for key in call.members} - set(members)
    return not unlike or (bool(gone) and at_fault(calls) == [])


def fault(calls: Mapping[int, Call], odd: list[int] | None) -> str:
    """The error's text.

    Args:
      odd: as `at_fault` says.
    """
    each = "".join(f"\n  rank {rank}: {call.what or 'nothing'}" for rank, call in sorted(calls.items()))
    found = next((call.unlike for call in calls.values() if call.unlike), "")
    next_ = (
        "Let all members make the same calls, with the same shapes, as `while run.steps_done < steps` does"
    )
    if not odd:
        whose = f"It cannot be told whose fault it is, so no member goes on. {next_}; then start them again"
    else:
        whose = (
            f"Ranks {odd} differ from most, or came last: they leave, and the others go on. {next_}; then "
            "start those again, and they join with the state of the others"
        )
    return f"members called unlike collectives:{each}\n{found}\n{whose}"
