"""DDP under two agents of torchrun that meet by c10d's rendezvous."""

from __future__ import annotations

from tests.programs.launch.torchrun import main

AGENTS = 2

if __name__ == "__main__":
    main()
