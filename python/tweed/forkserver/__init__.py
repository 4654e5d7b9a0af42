"""The warm fork server: one process that has torch imported, from which others are forked in milliseconds.

    launcher ── starts ──> fork server (torch imported, one thread) ── forks ──> children

server   starts it, with this process's import path and environment
warm     what it imports
process  a process of it whose start does not wait for the fork
child    what a child does first: it ends with its server, and takes Ctrl-C only when it is sent one

The server leaves when the launcher is gone, however it went, and the kernel kills the children with it.
"""

from __future__ import annotations
