"""What holds for every test: how examples are drawn, and from which seed."""

from __future__ import annotations

import os
import random
import signal

import pytest
from hypothesis import settings

from tweed.errors import NoTestbed
from tweed.testbed import Network, opened, preload

# A job in the background of a shell ignores Ctrl-C, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Ranks import the module of the test that they run, and with it these: once, in the fork server.
preload("pytest", "hypothesis")

# Examples may be slow on a busy machine, and that says nothing about the code: no deadlines.
settings.register_profile("fast", max_examples=50, deadline=None, print_blob=True)
settings.register_profile("thorough", settings.get_profile("fast"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(scope="session")
def namespaces() -> None:
    """For tests that build networks: skips them where that cannot be done, and says why. CI must do it."""
    try:
        with opened(Network(rate_bits=1e9, loss=0.001), 1):
            pass
    except NoTestbed as error:
        if "CI" in os.environ:
            raise
        pytest.skip(str(error))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draws the seed of this run, unless the command line gave one; hypothesis reads it next."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.SystemRandom().getrandbits(32))


#: Folders whose tests start commands as a user does, each of which takes seconds to load torch.
_SLOW = ("train", "torch", "cli", "launch")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest first: at the end one of two workers would have them alone, and the other nothing."""
    items.sort(key=lambda item: item.path.parent.name not in _SLOW)


def pytest_report_header(config: pytest.Config) -> str:
    """Prints how to draw the same examples again."""
    return f"to draw the same examples: pytest --hypothesis-seed={config.option.hypothesis_seed}"
