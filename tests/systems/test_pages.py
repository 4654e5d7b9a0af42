"""README.md and docs/systems.md have all systems and all names, as the code has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tweed import aggregate, cadence, compress, transport
from tweed.recipes import RECIPES
from tweed.report.study import part
from tweed.systems.__main__ import CHOOSING, KINDS, PAGE, README, _of, pages

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", [README, PAGE, CHOOSING], ids=str)
def test_a_page_is_up_to_date(page: Path) -> None:
    assert part(ROOT / page, "systems") == pages(ROOT)[ROOT / page], "`python -m tweed.systems` renews it"


def test_every_name_that_a_user_may_give_is_on_the_page() -> None:
    text = (ROOT / PAGE).read_text()
    names = [make.__name__ for make in RECIPES] + list(transport.TRANSPORTS)
    names += [name for stage in (compress, cadence, transport, aggregate) for name in stage.__all__]
    assert [name for name in names if f"`{name}`" not in text and f"`{name}(" not in text] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
def test_every_kind_of_part_is_found(kind: tuple[str, object, str]) -> None:
    assert _of(kind)  # type: ignore[arg-type]
