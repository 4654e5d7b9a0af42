"""`tweed launch`: starts the ranks of a job on several hosts, over the user's own ssh.

    launcher ── ssh ──> agent on each host ── starts ──> the host's ranks

job          hosts, ranks and what each rank is given; pure
host_checks  what hosts answer, and which answers keep a job from starting; pure
lines        what a rank prints, cut into whole lines; pure
job_exit     when a job has ended, and with which status; pure
agent        the program on each host: it starts ranks, and ends them when its standard input ends
session      the launcher's side of one agent
run          a job from the first look to the last rank

Launcher and agent speak in lines of JSON over the agent's standard input and output. The secret goes that way
too, never on a command line. An agent's input ends when its launcher does, in whatever way, so do ranks.
"""
