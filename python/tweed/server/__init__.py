"""The hub as a process of its own: members come when they like, under their keys.

run       `HubRun`, the run of such a hub
serving   `tweed.serve`
replays   `replay`: the run of a hub again, from its log

The machines and links are in `exchange/hub`, sockets and handshakes in `crates/net/src/hub`; what members do
is `tweed.attach(..., hub=...)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tweed.server.serving import serve

if TYPE_CHECKING:
    from tweed.server.replays import Replay, replay

__all__ = ["Replay", "replay", "serve"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tweed.server import replays  # as torch: importing this folder is light

    return getattr(replays, name)
