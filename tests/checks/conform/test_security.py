"""Client properties, and logging in."""

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.conform import security
from kafka_eos_checks.conform.security import (
    NotAuthenticated,
    Security,
    UnusableProperties,
    read_properties,
    security_of,
)

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'


def written(folder: Path, text: str) -> Path:
    path = folder / "client.properties"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("acks=1\nacks = all \n", {"acks": "all"}),
        ("acks:all\nlinger.ms 5\n\tretries\t=\t3", {"acks": "all", "linger.ms": "5", "retries": "3"}),
        ("acks=a\\\n   ll\nretries=3", {"acks": "all", "retries": "3"}),
        ("acks=a\\\r\n   ll\r\nretries=3", {"acks": "all", "retries": "3"}),
        ("# acks is \\\nacks=1", {"acks": "1"}),
        ("ssl.key.location=C:\\\\\nacks=1", {"ssl.key.location": "C:\\", "acks": "1"}),
        ("client.id=\\u0061\\=b\\:\\t\\z", {"client.id": "a=b:\tz"}),
        ("a\\ b\\=c=d", {"a b=c": "d"}),
        ("sasl.password=a=b: c", {"sasl.password": "a=b: c"}),
        ("client.id=a\u2028b\x0bc", {"client.id": "a\u2028b\x0bc"}),
        ("client.id=", {"client.id": ""}),
        ("client.id=a\\", {"client.id": "a"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, properties: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(text.encode())
    assert read_properties(path) == properties


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("acks=all\nretries\n", "line 2: 'retries' is not name=value"),
        ("acks=all\n\nclient.id=\\u00zz", r"line 3: a \u without four hexadecimal digits, which Java refuses"),
        ("=all", "line 1: '=all' is not name=value"),
    ],
)
def test_a_line_that_is_no_property_is_refused_with_its_number(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UnusableProperties) as refused:
        read_properties(written(tmp_path, text))
    assert said in str(refused.value)


def test_both_families_of_names_mean_the_same(tmp_path: Path) -> None:
    librdkafka = "security.protocol=sasl_plaintext\nsasl.mechanisms=PLAIN\nsasl.username=u\nsasl.password=p\n"
    java = (
        f"# a comment\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={JAAS}\nclient.id=x\n"
    )
    wanted = Security(mechanism="PLAIN", username="u", password="p")  # noqa: S106 - of nobody
    assert security_of(read_properties(written(tmp_path, librdkafka))) == wanted
    assert security_of(read_properties(written(tmp_path, java))) == wanted


@pytest.mark.parametrize(
    ("options", "username", "password"),
    [
        (r'username="al\"i" password="a\\b";', 'al"i', "a\\b"),
        ("username=alice password='s3 c';", "alice", "s3 c"),
        ('username = "a" password = "";', "a", ""),
        ("username=al.ice password=s3-x_$;", "al.ice", "s3-x_$"),
        (r'username="\x\n\101\7a" password="p" user_bob="z";', "x\nA\aa", "p"),
        ('/* username="no" */ username="u" // username="no"\n password="p;q" ;', "u", "p;q"),
        (r'username="u" password="a=b username=\"x\"";', "u", 'a=b username="x"'),
    ],
)
def test_a_login_of_jaas_is_read_as_kafka_reads_it(options: str, username: str, password: str) -> None:
    jaas = f"org.apache.kafka.common.security.plain.PlainLoginModule required {options}"
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    assert security_of(given) == Security(mechanism="PLAIN", username=username, password=password)


@pytest.mark.parametrize("password", ["12", ""])
def test_a_login_of_jaas_with_a_value_that_kafka_refuses_has_none(password: str) -> None:
    jaas = f"org.apache.kafka.common.security.plain.PlainLoginModule required username=alice password={password};"
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    with pytest.raises(UnusableProperties, match="sasl_plaintext needs"):
        security_of(given)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense\n", "line 1: 'nonsense' is not name=value"),
        ("security.protocol=telnet\n", "telnet is none of plaintext"),
        ("security.protocol=sasl_ssl\nsasl.mechanism=GSSAPI\n", "GSSAPI is none of PLAIN"),
        ("security.protocol=sasl_plaintext\nsasl.mechanism=PLAIN\n", "sasl.password"),
        ("sasl.oauthbearer.token.endpoint.url=x\n", "sasl.oauthbearer.token.endpoint.url is not supported here"),
        ("security.protocol=ssl\nssl.truststore.type=JKS\n", "only PEM"),
        ("security.protocol=ssl\nssl.ca.location=/nowhere\n", "cannot be read as PEM"),
    ],
)
def test_properties_that_cannot_be_used_say_why(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UnusableProperties, match=said):
        security_of(read_properties(written(tmp_path, text)), "client.properties")


def test_scram_is_that_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security.secrets, "token_urlsafe", lambda _: "rOprNGfwEbeRWgbNEkqO")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    sent: list[bytes] = []
    answers = [
        f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(),
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ]

    def exchange(data: bytes) -> bytes:
        sent.append(data)
        return answers[len(sent) - 1]

    login = Security(mechanism="SCRAM-SHA-256", username="user", password="pencil")  # noqa: S106 - the RFC's
    security.authenticate(login, exchange)
    assert sent == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode(),
    ]
    sent.clear()
    answers[1] = b"v=AAAA"
    with pytest.raises(NotAuthenticated):
        security.authenticate(login, exchange)


def test_a_name_with_the_marks_of_scram_is_escaped() -> None:
    sent: list[bytes] = []

    def exchange(data: bytes) -> bytes:
        sent.append(data)
        raise EOFError

    login = Security(mechanism="SCRAM-SHA-512", username="a=b,c", password="p")  # noqa: S106 - of nobody
    with pytest.raises(EOFError):
        security.authenticate(login, exchange)
    assert sent[0].startswith(b"n,,n=a=3Db=2Cc,r=")
    with pytest.raises(EOFError):
        security.authenticate(replace(login, mechanism="PLAIN"), exchange)
    assert sent[1:] == [b"\0a=b,c\0p"]


@pytest.mark.parametrize(
    "first",
    [
        "r=another,s=W22Z,i=4096",
        "s=W22Z,i=4096",
        "r={nonce}x,i=4096",
        "r={nonce}x,s=W22Z",
        "r={nonce}x,s=W22Z,i=many",
        "r={nonce}x,s=W22Z,i=0",
        "r={nonce}x,s=W,i=4096",
        "hello",
    ],
)
def test_a_first_message_for_another_client_or_without_salt_or_count_is_refused(first: str) -> None:
    def exchange(data: bytes) -> bytes:
        nonce = data.decode().rpartition("r=")[2]
        return first.format(nonce=nonce).encode()

    login = Security(mechanism="SCRAM-SHA-256", username="u", password="p")  # noqa: S106 - of nobody
    with pytest.raises(NotAuthenticated, match="makes no sense"):
        security.authenticate(login, exchange)


@pytest.mark.parametrize("last", ["v=W22Z", "v=é", "e=invalid-proof", "hello"])
def test_a_last_message_without_the_servers_proof_is_refused(last: str) -> None:
    def exchange(data: bytes) -> bytes:
        nonce = data.decode().rpartition("r=")[2]
        return (f"r={nonce}x,s=W22Z,i=1" if data.startswith(b"n,,") else last).encode("latin-1")

    login = Security(mechanism="SCRAM-SHA-256", username="u", password="p")  # noqa: S106 - of nobody
    with pytest.raises(NotAuthenticated, match="the server does not know the password"):
        security.authenticate(login, exchange)


@pytest.mark.parametrize(
    ("text", "checks_host", "checks_certificate"),
    [
        ("", True, True),
        ("ssl.endpoint.identification.algorithm=\n", False, True),
        ("ssl.endpoint.identification.algorithm=none\n", False, True),
        ("ssl.endpoint.identification.algorithm=HTTPS\n", True, True),
        ("enable.ssl.certificate.verification=false\n", False, False),
        ("enable.ssl.certificate.verification=true\n", True, True),
    ],
)
def test_a_broker_is_believed_without_its_name_or_certificate_only_if_the_properties_say_so(
    text: str, checks_host: bool, checks_certificate: bool, tmp_path: Path
) -> None:
    tls = security_of(read_properties(written(tmp_path, f"security.protocol=ssl\n{text}"))).tls
    assert tls is not None
    assert (tls.check_hostname, tls.verify_mode is ssl.CERT_REQUIRED) == (checks_host, checks_certificate)
    assert security_of(read_properties(written(tmp_path, text))).tls is None
