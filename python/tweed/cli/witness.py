"""`tweed witness`: decides, with others or alone, who is a member of a run whose workers come and go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_STANDS = {"joining": ", in which this one has no vote yet", "evicted": ": another one has this one's place"}


def witness(
    listen: Annotated[str, typer.Option(help="HOST:PORT that members call.")],
    state: Annotated[Path, typer.Option(help="File for what it must not forget; its key is in FILE.key.")],
    replaces: Annotated[str, typer.Option(help="KEY of a witness whose place it takes in a run.")] = "",
    of: Annotated[str, typer.Option(help="HOST:PORT,... of members or other witnesses of that run.")] = "",
) -> None:
    """Decide who is a member of a run, without a part in it: then all members but one may be lost at once.

    Prints what members give to `Elastic(witnesses=...)`. Runs until Ctrl-C, or it is killed; started again
    with the same file it goes on, at the same address. Take 1, 3 or 5 witnesses on machines that stay; more
    than half are needed, also to replace one that is lost for good, or is to move: --replaces KEY --of
    HOST:PORT, and a new file.
    """
    from tweed.elastic.witness import Replaces, Witness

    if bool(replaces) != bool(of):
        raise typer.BadParameter("--replaces KEY and --of HOST:PORT go together")
    one, known = Witness(listen, state, replaces=Replaces(replaces, of) if of else None), (0, "")
    address = one.address.rpartition("@")[2]
    advice = f"tweed witness --listen {address} --state {state}"
    says = f'Members give: Elastic(..., witnesses=("{one.address}",))'
    if one.resumed:
        says = f"{state} is of a run: goes on as its witness in epoch {one.resumed}, at {one.called_at}"
        says += ". To take another one's place, give a new file by --state" if of else ""
    elif of:
        says = f"Members know {one.address} from the epoch that has it in the place of {replaces}"
        advice += f" --replaces {replaces} --of {of}"
    try:
        typer.echo(says)
        while True:
            one.turn()
            if one.epoch and (now := (one.epoch, one.standing)) != known:
                known = now
                typer.echo(f"epoch {one.epoch}{_STANDS.get(one.standing, '')}")
    except KeyboardInterrupt:
        on = f"Members that lose one wait for it. To go on: {advice}"
        last = "Another witness has its place: nobody needs it."
        typer.echo(f"Stopped. {last if one.standing == 'evicted' else on}", err=True)
        raise typer.Exit(130) from None
    finally:
        one.close()
