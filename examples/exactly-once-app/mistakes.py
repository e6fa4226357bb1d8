"""The same application three times, each with one mistake: what the tests have to find."""

from collections.abc import Sequence

from confluent_kafka import Message

from shipping import Shipping


class ForgetsOffsets(Shipping):
    """Never calls ``send_offsets_to_transaction``: after a restart it ships everything once more."""

    def send_offsets(self, orders: Sequence[Message]) -> None:
        """Nothing."""


class CommitsOutside(Shipping):
    """Commits offsets by the consumer: after a crash in between, orders are lost, or shipped once more."""

    def send_offsets(self, orders: Sequence[Message]) -> None:
        """The offsets behind the orders, outside of the transaction."""
        for order in orders:
            self.consumer.commit(message=order, asynchronous=False)


class ForgetsToGoBack(Shipping):
    """Polls on after an abort: what was aborted is never shipped, and the next commit is behind it."""

    def go_back(self, orders: Sequence[Message]) -> None:
        """Nothing."""
