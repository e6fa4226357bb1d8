from collections.abc import Iterator
from typing import Any

import pytest

from kafka_eos_checks.replay.spark import session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark.sql")
    with session() as made:
        yield made
