"""A hub's `serve`, and `replay` of its log, where programs import them from: see `tweed.hub`."""

from __future__ import annotations

from tweed.hub.replay import Replay, replay
from tweed.hub.serve import serve

__all__ = ["Replay", "replay", "serve"]
