"""`python -m infrastructure.cli`, where the `outbox` script is not on the PATH."""

from infrastructure.cli import main

main()
