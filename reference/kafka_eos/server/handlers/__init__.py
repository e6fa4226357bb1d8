"""Requests and responses: what each API asks of the cluster, in which fields of which version.

A handler has the name of its API. It returns the response's fields, or ``None`` when it answers later (or never, as
Produce with acks=0). Handlers only translate the machines' answers into Kafka's error codes; the rules are the
machines'.

Kafka: KafkaApis, AddPartitionsToTxnManager, the schemas of the messages
"""

import re
from collections.abc import Callable, Mapping
from types import ModuleType

from kafka_eos.errors import ErrorCode
from kafka_eos.server.cluster import Cluster
from kafka_eos.server.handlers import configs, groups, logs, offsets, topics, transactions
from kafka_eos.server.handlers.request import Request
from kafka_eos.server.refusals import refusal
from kafka_eos.server.schemas import NOT_SERVED, REFUSED, SERVED, served_codec
from kafka_eos.wire.protocol import Message

Handler = Callable[[Cluster, Request], Message | None]
_MODULES: tuple[ModuleType, ...] = (topics, configs, logs, transactions, offsets, groups)


def _handler(api: str) -> Handler:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", api).lower()
    [handler] = [getattr(module, name) for module in _MODULES if hasattr(module, name)]
    return handler  # type: ignore[no-any-return]


HANDLERS: Mapping[str, Handler] = {api: _handler(api) for api in SERVED}


def handle(cluster: Cluster, request: Request) -> Message | None:
    """Answer a request, or do so later."""
    handler = HANDLERS.get(request.api)
    return _refuse(request) if handler is None else handler(cluster, request)


def _refuse(request: Request) -> Message:
    """The response to a request of an API that has no handler."""
    error, why = REFUSED.get(request.api) or (ErrorCode.UNSUPPORTED_VERSION, NOT_SERVED[request.api])
    return refusal(served_codec(), request.api, request.version, request.row, error, why)
