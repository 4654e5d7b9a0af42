"""`python -m tweed`, and the command `tweed`."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line; Ctrl-C while it is being loaded ends it without a traceback."""
    try:
        from tweed.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
