"""`tweed witness`: decides, with others or alone, who is a member of a run whose workers come and go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def witness(
    listen: Annotated[str, typer.Option(help="HOST:PORT that members call.")],
    state: Annotated[Path, typer.Option(help="File for what it must not forget; its key is in FILE.key.")],
) -> None:
    """Decide who is a member of a run, without a part in it: then all members but one may be lost at once.

    Prints what members give to `Elastic(witnesses=...)`. Runs until Ctrl-C, or it is killed; started again
    with the same file it goes on. Take 1, 3 or 5 witnesses on machines that stay; more than half are needed.
    """
    from tweed.elastic.witness import Witness

    one = Witness(listen, state)
    known = 0
    try:
        typer.echo(f'Members give: Elastic(..., witnesses=("{one.address}",))')
        while True:
            one.turn()
            if one.epoch != known:
                known = one.epoch
                typer.echo(f"epoch {known}")
    except KeyboardInterrupt:
        place = one.address.rpartition("@")[2]
        advice = f"tweed witness --listen {place} --state {state}"
        typer.echo(f"Stopped. Members that lose one wait for it. To go on: {advice}", err=True)
        raise typer.Exit(130) from None
    finally:
        one.close()
