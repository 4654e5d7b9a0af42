"""The hub as a process of its own: members come when they like, under their keys.

run       `HubRun`, the run of such a hub
serving   `tweed.serve`

The machines and links are in `exchange/hub`, sockets and handshakes in `crates/net/src/hub`; what members do
is `tweed.attach(..., hub=...)`.
"""

from __future__ import annotations

from tweed.server.serving import serve

__all__ = ["serve"]
