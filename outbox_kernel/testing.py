"""What a tester takes: recorded events asserted without a database, time that stands still, handlers run by hand."""

from outbox_kernel.kernel.testing import *  # noqa: F403 - the list of names stands there alone
from outbox_kernel.kernel.testing import __all__ as __all__  # noqa: PLC0414 - so that checkers take it for ours too
