"""The dashboard: what an operator sees and decides, in a browser (O3).

`app` is the ASGI application. `security` and `sealing` stand before every page and action, `operator` says who asks
and what that one may do. `pages` has a module a page, `actions` one for what changes something, and `audit` tells the
log who did it. `charts` draws SVG, `live` tells browsers that something has happened, `paging` is how a page says where
the next one begins, `words` how numbers and times are written, `rendering` what templates are given.

Every page is a plain GET and every action a form: scripts only save a reload. `Outbox.dashboard` makes it for an
application to mount, the commands `dashboard` and `dev` serve it. It needs what the extra `dashboard` brings.

It may import `operations` and what is below, and nothing of HTTP or the command line; it has no SQL of its own.
"""

from outbox_kernel.infrastructure.dashboard.extra import require_dashboard_extra

require_dashboard_extra()

from outbox_kernel.infrastructure.dashboard.app import Dashboard
from outbox_kernel.infrastructure.dashboard.operator import ALL_RIGHTS, Operator, Right

__all__ = ["ALL_RIGHTS", "Dashboard", "Operator", "Right"]
