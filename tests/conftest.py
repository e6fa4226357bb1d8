"""What all tests share: the profile of Hypothesis, and a seed that is printed and can be given again."""

import random

import pytest
from hypothesis import settings

settings.register_profile("kafka-eos", deadline=None, print_blob=True)
settings.load_profile("kafka-eos")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(1 << 32))


def seed_line(config: pytest.Config) -> str:
    return f"random tests: repeat with --hypothesis-seed={config.option.hypothesis_seed}"


def pytest_report_header(config: pytest.Config) -> str:
    return seed_line(config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.get_verbosity() < 0:  # then there is no header
        terminalreporter.write_line(seed_line(config))
