"""What touches the world: the database, the outbox, the command line. It knows no context by name."""

import os

if __name__ != "outbox_kernel.infrastructure":
    # In a checkout this folder stands at the top of the path as well, and a second import would make each class twice.
    raise ImportError(
        f"outbox-kernel has no top-level package {__name__!r}: import outbox_kernel.infrastructure",
        name=__name__,
    )

# In a checkout it is reached through a link: a debugger and a traceback are to show where its files are.
__path__ = [os.path.realpath(folder) for folder in __path__]
