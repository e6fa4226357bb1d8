"""The same application with one step left out, twice: what the tests have to find."""

from collections.abc import Sequence

from confluent_kafka import Message

from shipping import Shipping


class ForgetsOffsets(Shipping):
    """Never calls ``send_offsets_to_transaction``: after a restart it ships everything once more."""

    def send_offsets(self, orders: Sequence[Message]) -> None:
        """Nothing."""


class ForgetsToGoBack(Shipping):
    """Polls on after an abort: what was aborted is never shipped, and the next commit is behind it."""

    def go_back(self, orders: Sequence[Message]) -> None:
        """Nothing."""
