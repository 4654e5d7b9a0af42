"""Why there is a next epoch, from two that follow each other. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tweed.elastic.epoch import Epoch

#: Characters of a key that name a member to people.
SHORT = 8


@dataclass(frozen=True, slots=True)
class Change:
    """Who has come and gone, by keys, and links between two of them, the lower key first; each in order.

    Attributes:
      lost: who is out and has not said so. Who leaves in the very epoch in which others are lost is here too.
      left: who has left in good order.
      gone: who is out, where of the epochs between the two nothing is known.
      joined: who is new.
      returned: who was lost and is in again, as another process of its key.
      witnesses: who decides from now on, in the place of another witness.
      cut: links that do not work any more.
      healed: links that work again.
    """

    lost: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    witnesses: tuple[str, ...] = ()
    cut: tuple[tuple[str, str], ...] = ()
    healed: tuple[tuple[str, str], ...] = ()

    @property
    def words(self) -> str:
        """For people; empty for the first epoch, and where there is nothing else."""
        kinds = ("lost", "left", "gone", "joined", "returned")
        found = [f"{kind}: {_names(keys)}" for kind in kinds if (keys := getattr(self, kind))]
        found += [f"new witness: {_names(self.witnesses)}"] if self.witnesses else []
        found += [f"link cut: {_names(pair, ' and ')}" for pair in self.cut]
        found += [f"link works again: {_names(pair, ' and ')}" for pair in self.healed]
        return "; ".join(found)


def change(before: Epoch, now: Epoch) -> Change:
    """What has brought `now` about.

    Args:
      before: the last one that this process was in; with number 0 there was none, and nothing is known.
    """
    if before.number == 0:
        return Change()
    lives = dict(zip(before.members, before.lives, strict=False))
    since = dict(zip(now.members, now.lives, strict=False))
    out = tuple(key for key in before.members if key not in now.members)
    how = "gone" if now.number > before.number + 1 else "lost" if now.broken else "left"
    return Change(
        **{how: out},
        joined=tuple(key for key in now.members if key not in before.members),
        returned=tuple(key for key, life in since.items() if life > lives.get(key, life)),
        witnesses=tuple(key for key in now.witnesses if key not in before.witnesses),
        cut=_pairs(now.cut - before.cut),
        healed=_pairs(pair for pair in before.cut - now.cut if pair <= set(now.members)),
    )


def _pairs(links: Iterable[frozenset[str]]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((min(pair), max(pair)) for pair in links))


def _names(keys: Iterable[str], between: str = ", ") -> str:
    return between.join(key[:SHORT] for key in keys)
