"""`python -m infrastructure.cli`, where the `outbox` script is not on the PATH."""

from outbox_kernel.__main__ import main

main()
