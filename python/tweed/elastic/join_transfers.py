"""What a process gives to joiners, and what it takes as one: see `state_to_joiner` for how. Pure.

Messages go in by `handle`, and come out of `poll` with whom they are for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from torch import Tensor

from tweed.elastic.messages import Ask, Chunk, Give, Got, Refused, Text, packed
from tweed.elastic.state import State
from tweed.elastic.state_to_joiner import Copy, Differs, Donor
from tweed.elastic.terms import difference
from tweed.errors import DataError, PeerLost

_MOST_LEAD = 1 << 10
_NO_END = 1 << 63
#: A member that is asked says so soon who gives what, or another one is asked.
_ANSWER_S = 5.0
#: A rate is kept to over such a time: the thread that sends looks each 10 ms.
_BURST_S = 0.02


class JoinTransfers:
    """See the module.

    Args:
      key: of this process.
      bytes_per_s: what it gives to joiners, at most; None: what the links take.

    Attributes:
      terms: what this process holds, and all members must hold alike; None: its run has yet to begin.
      refused: the attempt of this process to get the state has failed, and why.
      asks_in: this joiner is near enough to the others that they may let it in.
    """

    def __init__(self, key: str, bytes_per_s: float | None = None) -> None:
        self.key, self.asks_in = key, False
        self.terms: list[str] | None = []
        self._early: dict[str, Ask] = {}  # what joiners have asked before the run begins, by key
        self._bytes_per_s = bytes_per_s
        self._paid = 0.0  # until when what was given uses the rate up
        self.refused: Refused | None = None
        self._donors: dict[str, Donor] = {}
        self._copy: Copy | None = None
        self._step, self._lead = 0, 2
        self._is_paused = False
        self._says: deque[tuple[str, bytes]] = deque()

    def begin(self, terms: list[str], members: Sequence[str]) -> None:
        """The run begins, with these terms; `members` as of `handle`."""
        self.terms, early, self._early = terms, self._early, {}
        for joiner, ask in early.items():
            self._order(joiner, ask, members)

    def step(self, step: int) -> None:
        """This step is the next that is not counted here."""
        self._step = step
        if self._copy is not None:
            self._acknowledge(self._copy.near(step))

    def handle(self, key: str, said: Text | Chunk, members: Sequence[str]) -> None:
        """Something has come from `key`; `members` are those that are reached, in the order of their ranks.

        Raises: DataError if it does not fit what came before.
        """
        copy = self._copy
        if isinstance(said, Chunk):
            if copy is None or said.attempt != copy.attempt:
                self._says.append((key, packed(Got(said.attempt, len(said.body)))))  # or it is kept for ever
            else:
                try:
                    self._acknowledge(copy.take(key, said))
                except Differs as error:
                    self.refused = Refused(copy.attempt, str(error), final=False)
        elif isinstance(said, Ask):
            self._order(key, said, members)
        elif isinstance(said, Give):
            if self.key in said.donors:
                self._begin_to_give(said)
            elif copy is not None and said.attempt == copy.attempt:
                copy.sources.update(said.donors)
                copy.donors = said.donors
                if not said.donors:
                    self.asks_in = True
                    self.refused = Refused(copy.attempt, "members wait for others to come", final=False)
        elif isinstance(said, Got):
            donor = self._donors.get(key)
            if donor is not None and donor.order.attempt == said.attempt:
                donor.got(said.count)
        elif isinstance(said, Refused) and copy is not None and said.attempt == copy.attempt:
            if self.refused is None:  # each donor may say so
                self._lead = min(2 * self._lead, _MOST_LEAD)
            self.refused = said if self.refused is None or said.final else self.refused

    def handle_lost(self, key: str) -> None:
        """The link to this process has ended."""
        self._donors.pop(key, None)
        self._early.pop(key, None)
        if self._copy is not None and key in self._copy.sources:
            self.refused = Refused(self._copy.attempt, "a member was lost while it gave", final=False)

    def handle_members(self, members: Sequence[str]) -> None:
        """A member was lost, and these are left: it may be silent over a link that stands. Joiners are not
        told who is a member, so who gives to one says so."""
        for key, donor in list(self._donors.items()):
            if not set(donor.order.donors) <= set(members):
                self._refuse(key, donor, "a donor was lost", final=False)
        if self._copy is not None and not self._copy.sources <= set(members):
            self.refused = Refused(self._copy.attempt, "a member was lost while it gave", final=False)

    def pause(self, is_paused: bool) -> None:
        """Whether members count no steps until others come: no step is that at which a donor is to copy, so
        who asks is let in first, and gets the whole state then."""
        if is_paused and not self._is_paused:
            for key, donor in list(self._donors.items()):
                if not donor.begun:
                    self._refuse(key, donor, "members wait for others to come", final=False)
        self._is_paused = is_paused

    def poll(self, now: float) -> tuple[str, bytes] | None:
        """What is to be sent next, and to whom."""
        copy = self._copy
        if copy is not None and not copy.donors and self.refused is None:
            copy.asked = now if copy.asked is None else copy.asked
            if now > copy.asked + _ANSWER_S:
                self.refused = Refused(copy.attempt, "the member that was asked is silent", final=False)
        if self._says:
            return self._says.popleft()
        for key, donor in list(self._donors.items()):
            if self._paid <= now and (chunk := donor.poll(self._step, now)) is not None:
                if self._bytes_per_s is not None:
                    self._paid = max(self._paid, now - _BURST_S) + len(chunk) / self._bytes_per_s
                return key, chunk
            if donor.done:
                self._donors.pop(key)
        return None

    # Giving.

    def donors_at(self, step: int) -> set[int]:
        """The numbers of donors by which the state at the begin of this step is given, to any joiner."""
        return {len(donor.order.donors) for donor in self._donors.values() if donor.wants_state(step)}

    def give_state(self, step: int, state: Callable[[], State], now: float) -> None:
        """This step begins: copies what joiners are to get of the state."""
        for key, donor in list(self._donors.items()):
            if donor.is_late(step):
                self._refuse(key, donor, "a donor was past the step at which it was to copy", final=False)
            elif donor.wants_state(step):
                found, donor = state(), donor.copy()
                donor.state(found, found.structure() if donor.part == 0 else b"", now)
                self._donors[key] = donor  # a whole state, whatever ends this call

    def give_result(self, step: int, result: Tensor, where: Sequence[int], mark: int, now: float) -> None:
        """This step counts, with this result, `[numel]`, where the steps are then, and `mark_of` both."""
        for key, donor in list(self._donors.items()):
            donor = donor.copy()
            if why := donor.result(step, result, where, mark, now):
                self._refuse(key, donor, why, final=True)
            else:
                self._donors[key] = donor

    def entered(self, members: Sequence[str] | None = None) -> None:
        """These, or all, get no more than what is kept for them: they have entered an epoch."""
        for key, donor in self._donors.items():
            if members is None or key in members:
                donor.last()

    @property
    def gives(self) -> bool:
        """Something is kept for a joiner."""
        return bool(self._donors)

    def _order(self, joiner: str, ask: Ask, members: Sequence[str]) -> None:
        """A joiner has asked this member: all give their part."""
        if self.key not in members:
            self._says.append((joiner, packed(Refused(ask.attempt, "who was asked is no member", False))))
            return
        if self.terms is None:
            self._early[joiner] = ask
            return
        if why := difference(self.terms, ask.terms):
            self._says.append((joiner, packed(Refused(ask.attempt, why, True))))
            return
        if self._is_paused:
            self._says.append((joiner, packed(Give(joiner, ask.attempt, self._step, []))))
            return
        step = self._step + max(1, min(ask.lead, _MOST_LEAD))
        donors = [key for key in members if key in ask.linked or key == self.key]
        give = Give(joiner, ask.attempt, step, donors)
        self._says.extend((key, packed(give)) for key in (*donors, joiner) if key != self.key)
        self._begin_to_give(give)

    def _begin_to_give(self, order: Give) -> None:
        """Begins to give to a joiner. Of its two attempts the later one counts: they come by several members,
        in any order."""
        old = self._donors.get(order.joiner)
        if old is None or old.order.attempt <= order.attempt:
            self._donors[order.joiner] = Donor(order, order.donors.index(self.key))

    def _refuse(self, key: str, donor: Donor, why: str, *, final: bool) -> None:
        self._says.append((key, packed(Refused(donor.order.attempt, why, final))))
        self._donors.pop(key)

    # Taking.

    def ask(self, members: Sequence[str], own_bytes: int) -> None:
        """Wants a copy of the state, and asks one after the other; `own_bytes` has what it is copied into."""
        attempt = 0 if self._copy is None else self._copy.attempt + 1
        member = members[attempt % len(members)]
        self._copy, self.refused = Copy(attempt, own_bytes, {member}), None
        self._says.append((member, packed(Ask(attempt, self._lead, list(members), self.terms or []))))

    def state(self) -> State | None:
        """When it is there, once. A donor that has given another part than most have refuses it for good."""
        copy = self._copy
        if copy is None:
            return None
        try:
            return copy.state()
        except DataError as error:
            self.refused = Refused(copy.attempt, str(error), final=True)
            return None

    def result(self, step: int, like: Tensor) -> tuple[Tensor, Sequence[int]] | None:
        """The result of this step if it is there, in the shape and type of `like`, and where the steps are
        then.

        Raises: PeerLost if this process is refused for good, and why.
        """
        copy = self._copy
        if copy is not None and copy.has(step):
            found = copy.result(step, like)
            self.asks_in = self.asks_in or copy.is_near(step + 1)
            return found
        if self.refused is not None and self.refused.final:
            raise PeerLost(f"this process cannot join: {self.refused.reason}")
        return None

    def cut_short(self) -> None:
        """A part of what is copied may be lost here."""
        if self._copy is not None and self.refused is None:
            self.refused = Refused(self._copy.attempt, "this process was interrupted", final=False)

    def is_in(self) -> None:
        """It has all that the others have: nothing is copied any more, and nothing kept for it."""
        if self._copy is not None:
            self._acknowledge(self._copy.near(_NO_END))
        self._copy, self.refused = None, None

    def _acknowledge(self, counts: list[tuple[str, int]]) -> None:
        assert self._copy is not None
        attempt = self._copy.attempt
        self._says.extend((key, packed(Got(attempt, count))) for key, count in counts)
