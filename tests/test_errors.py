"""Errors that another process has raised."""

from __future__ import annotations

import pytest

from tweed.errors import PeerLost, TweedError, remade


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("PeerLost", PeerLost), ("TweedError", TweedError), ("", TweedError)),
        *(("remade", TweedError), ("annotations", TweedError), ("SystemExit", TweedError)),
    ],
)
def test_an_error_is_made_again_by_its_name_in_the_tree_alone(name: str, kind: type) -> None:
    error = remade(name, "why")
    assert type(error) is kind and str(error) == "why"
