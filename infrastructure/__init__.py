"""What touches the world: the database, the outbox, brokers, HTTP, the command line. It knows no context by name.

A package stands for one part of the product: `outbox` writes events, `relay` delivers them, `inbox` stores what brokers
bring, `operations` is what operators decide. The modules beside the packages join them: `application` is the object
`Outbox`, `calling` and `scopes` make handlers run, `discovery` finds contexts, `settings` reads the environment.
`limits` holds the limits of those modules; each package has a module of that name for its own.

Applications call it by the door `outbox_kernel`. A context's `topology`, `api` and `demo` call `brokers`, `http` and
`demo`, which they are made with. The entry point of the wheel calls `cli`.

It may import the kernel, and what pyproject.toml names, extras only where they are asked for; never a context. Among
themselves its packages stand in layers, which .importlinter has in their order.
"""

import os

if __name__ != "outbox_kernel.infrastructure":
    # In a checkout this folder stands at the top of the path as well, and a second import would make each class twice.
    raise ImportError(
        f"outbox-kernel has no top-level package {__name__!r}: import outbox_kernel.infrastructure",
        name=__name__,
    )

# In a checkout it is reached through a link: a debugger and a traceback are to show where its files are.
__path__ = [os.path.realpath(folder) for folder in __path__]
