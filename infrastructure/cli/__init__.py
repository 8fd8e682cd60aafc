"""The `outbox` command: what an operator and a developer type (O1, R14, R15).

A module a command, or a few that belong together; `command_line` puts them under one name, and turns whatever a
command raises into one sentence and an exit code. `at_desk` opens the desk at which operators ask and decide,
`output` prints a table for people or JSON for programs, `serving` runs what serves until it is told to stop.

A command shows and asks, and decides nothing: what it does is a function of `operations`, or a method of the object
`Outbox`, which a program may call as well. How to add one is told in docs/how-to/add-a-command.md.

It may import everything below it. Nothing imports it but the entry point of the wheel.
"""

from outbox_kernel.infrastructure.cli.command_line import main

__all__ = ["main"]
