"""The stage on which `outbox demo` plays the scenes of each context's `demo` module (O2).

`stage` has an embedded PostgreSQL, relays as processes that can be killed, and what a scene may do with them; `play`
plays the scenes one after the other; `readings` reads from the outbox what the closing account says; `printing`
prints it. Nothing is said that was not read from the database.

The command `demo` calls it. A context's scenes import `Scene` and `Stage` and nothing else of it.

It may import everything below the command line, the discovery of contexts included, and no context by name.
"""

from outbox_kernel.infrastructure.demo.play import NothingToShow, play, scenes_of
from outbox_kernel.infrastructure.demo.stage import Scene, Stage

__all__ = ["NothingToShow", "Scene", "Stage", "play", "scenes_of"]
