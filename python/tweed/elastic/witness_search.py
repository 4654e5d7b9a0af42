"""How a process finds the run in which it wants a witness's place.

It says where it is called to all of that run whom it knows, again and again, and they call it: over those
calls alone it asks for its place, as a voter that members cannot call would be lost with its first link. It
knows whom it was told of, and learns of the others from who answers; so any of them may be lost meanwhile.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from tweed.elastic.messages import MOST_BYTES, TEXT, Candidate, Hello, Known, packed, read
from tweed.errors import DataError, UsageError
from tweed.links.address import Credentials, HubAddress
from tweed.links.client import opened
from tweed.links.dialer import Dialer

log = logging.getLogger("tweed")

_AGAIN_S = 1.0
_PATIENCE_S = 10.0


@dataclass
class Obstacle:
    """Why there is no place yet, and since when. Pure.

    Example:
      >>> seen = Obstacle(since=0.0)
      >>> [seen.lasts("nobody answers", now) for now in (1.0, 10.0, 11.0, 12.0)]
      [False, False, True, False]
    """

    since: float
    why: str = ""
    _told: bool = False

    def lasts(self, why: str, now: float) -> bool:
        """Whether this has been so for ten seconds; once for each reason."""
        if why != self.why:
            self.why, self.since, self._told = why, now, False
        is_due = not self._told and now - self.since >= _PATIENCE_S
        self._told = self._told or is_due
        return is_due


def obstacle(address: str, *, answers: bool, calls: bool) -> str:
    """What is missing, and what to do about it.

    Args:
      address: where the new witness is called.
      answers: somebody of the run does.
      calls: somebody has called this process.
    """
    if calls:
        return (
            "members have called this witness, but no epoch has it yet: more than half of the run's "
            "witnesses must answer its members; the members' logs say which ones they wait for"
        )
    if answers:
        return f"no member calls this witness at {address}: it must listen where they reach it"
    return "no process of the run answers. Give more addresses of its members or witnesses with --of"


class WitnessElection:
    """See the module. One thread calls it.

    Args:
      key, address: of the new witness, and where it is called.
      of: "host:port" of those that it knows, with commas between.
    """

    def __init__(self, key: str, address: str, of: str) -> None:
        self._said, self._address = packed(Candidate(key, address)), address
        self._asking = opened(Credentials.of(None).anonymous, MOST_BYTES)
        self._dialers = dict[str, Dialer]()
        self._links = dict[int, str]()  # by number, to which address
        self._again_s, self._obstacle = 0.0, Obstacle(time.monotonic())
        for one in filter(None, (one.strip() for one in of.split(","))):
            self.learn(one)
        self._given = frozenset(self._dialers)

    def learn(self, address: str) -> None:
        """Somebody of the run is called there."""
        key, _, place = address.rpartition("@")
        if place and place not in (self._address, *self._dialers):
            self._dialers[place] = Dialer(self._asking, HubAddress(place, key.lower() or None))

    def turn(self, *, calls: bool) -> None:
        """Does what is due, and waits for nothing. Logs what lasts long.

        Args:
          calls: somebody has called the new witness.

        Raises: UsageError: one that it was told of refuses this process, and no other one answers.
        """
        now = time.monotonic()
        for link, what in self._asking.next(0.0):
            self._handle(link, what)
        for place in [place for place in self._dialers if place not in self._links.values()]:
            if (found := self._called(place, now)) is not None:
                self._links[found] = place
                self._asking.send(found, packed(Hello("")))
                self._asking.send(found, self._said)
        if now >= self._again_s:
            self._again_s = now + _AGAIN_S
            for link in self._links:
                self._asking.send(link, self._said)
        why = obstacle(self._address, answers=bool(self._links), calls=calls)
        if self._obstacle.lasts(why, now):
            failed = "; ".join(one.failed for one in self._dialers.values() if one.failed)
            log.warning("%s%s", why, f" ({failed})" if failed and not calls else "")

    def _called(self, place: str, now: float) -> int | None:
        try:
            return self._dialers[place].poll(now)
        except UsageError:
            if place in self._given and not self._links:
                raise
            return None  # another program may be there by now; `Dialer.failed` says what

    def _handle(self, link: int, what: bytes | bytearray | str) -> None:
        if isinstance(what, str):
            self._links.pop(link, None)
        elif what[:1] == bytes([TEXT]) and isinstance(what, bytearray):
            try:
                said = read(what)
            except DataError as error:
                self._asking.cut(link, str(error))
            else:
                for _, address in said.others if isinstance(said, Known) else []:
                    self.learn(address)

    def close(self) -> None:
        """Ends the links of this election."""
        self._asking.close()
        for dialer in self._dialers.values():
            dialer.close()
