"""C4, as far as it is the kernel's: a use case wrapped to be retried."""

import pytest

from outbox_kernel.errors import ConcurrencyError, KernelError
from outbox_kernel.kernel import retry_on_conflict


class Flaky:
    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.attempts = 0
        self.failures = failures
        self.error = error or ConcurrencyError("another was first")

    async def run(self, result: str) -> str:
        self.attempts += 1
        if self.attempts <= self.failures:
            raise self.error
        return result


async def test_what_succeeds_runs_once() -> None:
    flaky = Flaky(0)
    assert await retry_on_conflict(flaky.run)("done") == "done"
    assert flaky.attempts == 1


async def test_a_conflict_is_retried() -> None:
    flaky = Flaky(2)
    assert await retry_on_conflict(flaky.run)("done") == "done"
    assert flaky.attempts == 3


async def test_the_last_conflict_comes_out() -> None:
    flaky = Flaky(9)
    with pytest.raises(ConcurrencyError):
        await retry_on_conflict(attempts=2)(flaky.run)("done")
    assert flaky.attempts == 2


async def test_any_other_error_comes_out_at_once() -> None:
    flaky = Flaky(1, KernelError("no"))
    with pytest.raises(KernelError):
        await retry_on_conflict(flaky.run)("done")
    assert flaky.attempts == 1


def test_the_name_of_a_use_case_is_kept() -> None:
    @retry_on_conflict
    async def close_account() -> None:
        """Close it."""

    assert (close_account.__name__, close_account.__doc__) == ("close_account", "Close it.")


def test_there_is_at_least_one_attempt() -> None:
    with pytest.raises(ValueError, match="at least one attempt, not 0"):
        retry_on_conflict(attempts=0)
