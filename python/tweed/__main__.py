"""`python -m tweed`: the command `tweed`."""

from __future__ import annotations

from tweed.cli import main

main()
