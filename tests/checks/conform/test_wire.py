"""Requests to a broker, and the answers that are none."""

import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos.server.schemas import served_codec
from kafka_eos_checks.conform import wire
from kafka_eos_checks.conform.security import Security
from kafka_eos_checks.conform.wire import (
    SILENT_LIMIT,
    Address,
    Connection,
    ConnectionClosed,
    NoAnswer,
    NotInTime,
    Unreachable,
    Unsupported,
    Wire,
    address_of,
)

Answer = Callable[[int, int, int], bytes]  # of API key, version and correlation id


@contextmanager
def broker(answer: Answer) -> Iterator[Address]:
    """A broker that answers each request with these bytes, and closes the connection for none."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as frames:
                while size := frames.read(4):
                    key, version, correlation = struct.unpack_from(">hhi", frames.read(struct.unpack(">i", size)[0]))
                    sent = answer(key, version, correlation)
                    if not sent:
                        break
                    connection.sendall(sent)

    thread = Thread(target=serve)
    thread.start()
    try:
        yield Address("127.0.0.1", listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def versions(version: int, correlation: int, error: int = 0) -> bytes:
    """A framed answer to ApiVersions."""
    rows = [{"ApiKey": 18, "MinVersion": 0, "MaxVersion": 4}, {"ApiKey": 22, "MinVersion": 2, "MaxVersion": 3}]
    rows.append({"ApiKey": 30_000, "MinVersion": 0, "MaxVersion": 0})  # one that nobody knows here
    return framed(
        served_codec().write_response("ApiVersions", version, correlation, {"ErrorCode": error, "ApiKeys": rows})
    )


def asked(answer: Answer, seconds: float = 5.0) -> Any:
    with broker(answer) as address:
        connection = Connection(address, Security(), seconds)
        try:
            return connection.ask("ApiVersions", 3, {"ClientSoftwareName": "x", "ClientSoftwareVersion": "1"})
        finally:
            connection.close()


def test_an_answer_has_the_fields_of_its_version() -> None:
    assert [row["ApiKey"] for row in asked(lambda _, version, number: versions(version, number))["ApiKeys"]] == [
        18,
        22,
        30_000,
    ]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda _, version, number: versions(version, number + 1), "the answer to another request"),
        (lambda *_: b"", "closed the connection"),
        (lambda *_: struct.pack(">i", -1), "at byte 0: -1 bytes announced"),
        (lambda *_: struct.pack(">i", wire.ANSWER_LIMIT + 1), f"{wire.ANSWER_LIMIT + 1} bytes announced"),
        (lambda *_: framed(b"\0\0"), r"at offset 4 \(actual buffer size is 2\)"),
        (
            lambda _, version, number: framed(versions(version, number)[4:] + b"\0\0"),
            "2 bytes after the end of ApiVersions v3",
        ),
    ],
    ids=["another request", "end", "negative", "too long", "too short", "more than the fields"],
)
def test_bytes_that_are_no_response_to_the_request_are_no_answer(answer: Answer, said: str) -> None:
    with pytest.raises(NoAnswer, match=f"{said}$") as raised:
        asked(answer)
    assert isinstance(raised.value, ConnectionClosed) == (said == "closed the connection")


def test_an_answer_of_the_largest_size_is_waited_for_and_not_refused() -> None:
    with pytest.raises(NoAnswer, match=r"no answer within 0\.2 s"):
        asked(lambda *_: struct.pack(">i", wire.ANSWER_LIMIT), seconds=0.2)


def test_a_broker_is_asked_in_version_0_what_it_offers_if_it_knows_or_answers_nothing_newer() -> None:
    refusing: list[tuple[int, int]] = []

    def refuse(key: int, version: int, number: int) -> bytes:
        refusing.append((key, version))
        return versions(0, number, error=35 if version else 0)  # KIP-511: told in the oldest version

    closing: list[tuple[int, int]] = []

    def close(key: int, version: int, number: int) -> bytes:
        closing.append((key, version))
        return b"" if version else versions(0, number)

    for answer, seen in ((refuse, refusing), (close, closing)):
        with broker(answer) as address:
            asking = Wire(address)
            asking.connect()
            asking.close()
        assert seen == [(18, 3), (18, 0)]
        assert asking.offered == {"ApiVersions": (0, 4), "InitProducerId": (2, 3)}


def test_one_that_answers_nothing_at_all_is_no_kafka_broker() -> None:
    with (
        broker(lambda *_: b"") as address,
        pytest.raises(Unreachable, match=f"{address}: no Kafka broker answers: .*; it may still be starting"),
    ):
        Wire(address).connect()


@pytest.mark.parametrize(
    ("offered", "cap", "version"),
    [((0, 99), None, 6), ((0, 3), None, 3), ((0, 99), 2, 2), ((6, 99), None, 6), ((2, 4), 2, 2)],
)
def test_a_request_has_the_newest_version_of_both_sides_up_to_the_cap(
    offered: tuple[int, int], cap: int | None, version: int
) -> None:
    assert served_codec().versions("InitProducerIdRequest").stop - 1 == 6
    caps = {} if cap is None else {"InitProducerId": cap}
    assert (
        Wire(Address("nowhere", 1), offered={"InitProducerId": offered}, caps=caps).version("InitProducerId") == version
    )


@pytest.mark.parametrize(("offered", "cap"), [((7, 99), None), ((0, -1), None), ((3, 4), 2)])
def test_a_version_that_only_one_side_knows_is_not_supported(offered: tuple[int, int], cap: int | None) -> None:
    caps = {} if cap is None else {"InitProducerId": cap}
    asking = Wire(Address("nowhere", 1), offered={"InitProducerId": offered}, caps=caps)
    with pytest.raises(Unsupported, match=f"the broker offers versions {offered[0]} to {offered[1]}"):
        asking.version("InitProducerId")
    with pytest.raises(Unsupported, match="the broker does not offer it"):
        asking.version("EndTxn")


@pytest.mark.parametrize("gives_up", [True, False])
def test_a_broker_that_hangs_is_asked_a_few_times_until_it_has_answered_or_restarted(
    gives_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    hanging: set[str] = set()

    def ask(self: Any, api: str, *_: Any) -> dict[str, Any]:
        asked.append(api)
        if api in hanging:
            raise NotInTime("late")
        return {}

    made: list[Any] = []

    def connect(*_: Any) -> Any:
        made.append(SimpleNamespace(ask=partial(ask, None), close=lambda: None))
        return made[-1]

    monkeypatch.setattr(wire, "Connection", connect)
    own = Wire(Address("127.0.0.1", 9), offered=dict.fromkeys(("EndTxn", "Fetch"), (0, 4)), gives_up=gives_up)

    def told(times: int, api: str = "EndTxn") -> list[str]:
        said = []
        for _ in range(times):
            with pytest.raises(NoAnswer) as late:
                own.ask(api, {})
            said.append(str(late.value))
        return said

    hanging.add("EndTxn")
    told(SILENT_LIMIT - 1)
    hanging.clear()
    own.ask("EndTxn", {})
    hanging.add("EndTxn")
    again = "EndTxn: no answer within 10 s, 3 times in a row; 127.0.0.1:9 is not asked for it again"
    asked.clear()
    assert told(SILENT_LIMIT + 2) == ["late"] * SILENT_LIMIT + [again if gives_up else "late"] * 2
    assert asked == ["EndTxn"] * (SILENT_LIMIT + (0 if gives_up else 2))
    own.ask("Fetch", {})
    before = len(made)
    own.close()  # as after a restart
    assert told(1) == ["late"]
    assert len(made) == before + 1


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9092", Address("localhost", 9092)),
        (" one:1 , two:2", Address("one", 1)),
        ("[::1]:65535", Address("::1", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: Address) -> None:
    assert address_of(text) == address
    assert address_of(str(address)) == address


@pytest.mark.parametrize(
    "text", ["localhost", "localhost:", ":9092", "localhost:0", "localhost:65536", "localhost:x", "localhost:9²", ""]
)
def test_a_text_without_a_port_that_can_be_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        address_of(text)


def test_a_wait_doubles_up_to_a_tenth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(wire.time, "sleep", waits.append)
    for attempt in (0, 1, 5, 6, 100, 10_000):
        wire.wait(attempt)
    assert waits == [0.002, 0.004, 0.064, 0.1, 0.1, 0.1]


# --- logging in ------------------------------------------------------------------------------------------------------

LOGIN = Security(mechanism="PLAIN", username="u", password="p")  # noqa: S106 - of nobody


def sasl(api: str, version: int, correlation: int, row: dict[str, Any]) -> bytes:
    """A framed answer to a request of a login."""
    return framed(wire._SASL_CODEC.write_response(api, version, correlation, row))


def logging_in(
    handshake: int = 0, authenticate: int = 0, mechanisms: Sequence[str] = ("GSSAPI", "X")
) -> tuple[Answer, list[tuple[int, int]]]:
    """A broker that answers a login with these codes, and what it is asked."""
    seen: list[tuple[int, int]] = []

    def answer(key: int, version: int, number: int) -> bytes:
        seen.append((key, version))
        if key == 17:
            return sasl("SaslHandshake", version, number, {"ErrorCode": handshake, "Mechanisms": list(mechanisms)})
        if key == 36:
            row = {"ErrorCode": authenticate, "ErrorMessage": "wrong password", "AuthBytes": b""}
            return sasl("SaslAuthenticate", version, number, row)
        return versions(version, number)

    return answer, seen


def test_a_client_logs_in_before_it_asks_anything() -> None:
    answer, seen = logging_in()
    with broker(answer) as address:
        asking = Wire(address, LOGIN)
        asking.connect()
        asking.close()
    assert seen == [(17, 1), (36, 0), (18, 3)]
    assert asking.offered


@pytest.mark.parametrize(
    ("codes", "said", "asked_for"),
    [
        ((33, 0), "SASL PLAIN is not offered, but GSSAPI, X$", [17]),
        ((34, 0, ()), "SASL PLAIN is not offered, nor any other mechanism: its listener has no SASL$", [17]),
        ((0, 58), "SASL: wrong password$", [17, 36]),
    ],
)
def test_a_client_that_is_not_logged_in_asks_nothing_and_says_why(
    codes: Sequence[Any], said: str, asked_for: list[int]
) -> None:
    answer, seen = logging_in(*codes)
    with broker(answer) as address, pytest.raises(Unreachable, match=f"{address}: {said}"):
        Wire(address, LOGIN).connect()
    assert [key for key, _ in seen] == asked_for


def test_a_broker_that_knows_no_login_is_unreachable() -> None:
    with broker(lambda *_: b"") as address, pytest.raises(Unreachable, match="SaslHandshake v1: the broker closed"):
        Wire(address, LOGIN).connect()


def test_a_client_with_tls_names_the_host_and_is_told_what_is_wrong_with_its_certificate() -> None:
    named: list[str] = []

    def wrap(link: socket.socket, server_hostname: str) -> socket.socket:
        named.append(server_hostname)
        if len(named) > 1:
            raise ssl.SSLCertVerificationError("certificate has expired")
        return link

    security = Security(tls=SimpleNamespace(wrap_socket=wrap))  # type: ignore[arg-type]
    with broker(lambda *_: b"") as address:
        Connection(address, security, 1).close()
        with pytest.raises(Unreachable, match=f"^{address}: .*certificate has expired"):
            Connection(address, security, 1)
    assert named == [address.host] * 2
