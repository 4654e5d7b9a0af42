"""`python -m tweed.systems.hoplite applications AlexNet serving --nodes 4`: prints a line per side.

With `collectives` it is the driver of a cluster, see there.
"""

from __future__ import annotations

import sys

from tweed.systems.hoplite import applications, collectives

DRIVERS = {"applications": applications.main, "collectives": collectives.main}

if __name__ == "__main__":
    name, words = sys.argv[1] if sys.argv[1:] else None, sys.argv[2:]
    if name not in DRIVERS:
        raise SystemExit(f"there is no {name!r} to run; there are {', '.join(DRIVERS)}")
    DRIVERS[name](words)
