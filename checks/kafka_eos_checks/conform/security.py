"""TLS and SASL of a client, by the names of librdkafka's and of Kafka's properties.

KIPs:  43, 84, 152, 651
Kafka: SaslConfigs, SslConfigs, ScramSaslClient
"""

import base64
import hashlib
import hmac
import re
import secrets
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = ("PLAIN", *SCRAM_HASHES)
_ABOUT_SECURITY = ("security.", "ssl.", "sasl.")
_OTHER_NAMES = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.keystore.location": "ssl.certificate.location",
    "ssl.keystore.password": "ssl.key.password",
}
"""librdkafka's names of properties, and Kafka's names of the same."""
_KNOWN = {
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "ssl.truststore.type",
    "ssl.keystore.type",
    "ssl.truststore.password",
}


class UnusableProperties(ValueError):  # noqa: N818 - named for the input
    """A file of client properties that cannot be used; says file, line or property, and reason."""


def read_properties(path: Path) -> dict[str, str]:
    """Read a file of Java properties as ``java.util.Properties.load`` does; a later line wins.

    A line without any separator is refused: Java takes it for a name with an empty value. White space after a value is
    left out, as Kafka's clients do.

    Raises:
        UnusableProperties: when a line has another form.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UnusableProperties(f"{path}: {error.strerror or error}; give a properties file") from None
    except UnicodeDecodeError as error:
        raise UnusableProperties(f"{path}: {error}") from None
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        name, separator, value = _NAME.match(line).groups()  # type: ignore[union-attr]  # it matches any text
        if not name or not separator:
            raise UnusableProperties(f"{path}, line {number}: {line.strip()!r} is not name=value")
        try:
            found[_unescaped(name)] = _unescaped(value).strip()
        except ValueError:
            raise UnusableProperties(
                f"{path}, line {number}: a \\u without four hexadecimal digits, which Java refuses; write \\\\ for one "
                "backslash"
            ) from None
    return found


# A name, which ends before the first separator that is not escaped; the separator; the value.
_NAME = re.compile(r"((?:[^\\=: \t\f]|\\.?)*)([ \t\f]*[=:][ \t\f]*|[ \t\f]+|)(.*)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; an odd number of backslashes at its end continues one, except a comment."""
    lines = enumerate(text.split("\n"), start=1)
    for number, physical in lines:
        line = physical.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(lines, (0, ""))[1].lstrip(" \t\f")
        yield number, line


def _unescaped(text: str) -> str:
    r"""A name or value without its backslashes.

    Raises:
        ValueError: a ``\u`` without four hexadecimal digits.
    """

    def character(found: re.Match[str]) -> str:
        digits, letter = found[1], found[2]
        if digits is not None:
            return chr(int(digits, 16))
        if letter == "u":
            raise ValueError("no four digits")
        return _ESCAPED.get(letter, letter)

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.?))", character, text, flags=re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The security settings of a client.

    Attributes:
        tls: None for an unencrypted connection.
        mechanism: SASL's mechanism, "" for none.
        username: SASL's user name.
        password: SASL's password.
    """

    tls: ssl.SSLContext | None = None
    mechanism: str = ""
    username: str = ""
    password: str = ""


def security_of(properties: Mapping[str, str], source: str = "properties") -> Security:
    """The security that the properties ask for; properties about anything else are ignored.

    Raises:
        UnusableProperties: for what is unknown here or does not fit together.
    """
    given: dict[str, str] = {}
    for key, value in properties.items():
        name = _OTHER_NAMES.get(key, key)
        if name == "enable.ssl.certificate.verification":
            given[name] = value
        elif key.startswith(_ABOUT_SECURITY):
            if name not in _KNOWN:
                raise UnusableProperties(
                    f"{source}: {key} is not supported here; supported: {', '.join(sorted(_KNOWN))}"
                )
            given[name] = value
    protocol = given.get("security.protocol", "plaintext").lower()
    if protocol not in PROTOCOLS:
        raise UnusableProperties(f"{source}: security.protocol={protocol} is none of {', '.join(PROTOCOLS)}")
    tls = _context(given, source) if protocol.endswith("ssl") else None
    if not protocol.startswith("sasl"):
        return Security(tls=tls)
    mechanism = given.get("sasl.mechanism", "")
    if mechanism not in MECHANISMS:
        raise UnusableProperties(f"{source}: sasl.mechanism={mechanism} is none of {', '.join(MECHANISMS)}")
    login = _login(given.get("sasl.jaas.config", ""))
    username = given.get("sasl.username", login.get("username"))
    password = given.get("sasl.password", login.get("password"))
    if username is None or password is None:
        raise UnusableProperties(f"{source}: {protocol} needs sasl.username and sasl.password, or sasl.jaas.config")
    return Security(tls=tls, mechanism=mechanism, username=username, password=password)


# A comment; or the name of an option and its value, in quotes of either kind or as a word.
_JAAS = re.compile(
    r"""/\*.*?\*/|//[^\n]*|([\w.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|((?:[^\W\d]|\$)[\w.$-]*))""",
    re.DOTALL,
)
_IN_QUOTES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _login(jaas: str) -> dict[str, str]:
    """The options of ``org.apache.kafka.common.security.plain.PlainLoginModule required username="u" …;``.

    Kafka: JaasConfig
    """
    return {
        found[1]: _unquoted(found[2] or found[3] or "") if found[4] is None else found[4]
        for found in _JAAS.finditer(jaas)
        if found[1] is not None
    }


def _unquoted(text: str) -> str:
    """The text in quotes without its backslashes."""

    def character(found: re.Match[str]) -> str:
        return chr(int(found[1], 8)) if found[1] else _IN_QUOTES.get(found[2], found[2])

    return re.sub(r"\\(?:([0-3]?[0-7]{1,2})|(.))", character, text, flags=re.DOTALL)


def _context(given: Mapping[str, str], source: str) -> ssl.SSLContext:
    for store in ("ssl.truststore.type", "ssl.keystore.type"):
        if given.get(store, "PEM").upper() != "PEM":
            raise UnusableProperties(f"{source}: {store}={given[store]}: only PEM can be read here; keytool exports it")
    try:
        context = ssl.create_default_context(cafile=given.get("ssl.ca.location"))
        if "ssl.certificate.location" in given:
            context.load_cert_chain(
                given["ssl.certificate.location"], given.get("ssl.key.location"), given.get("ssl.key.password")
            )
    except (OSError, ssl.SSLError) as error:
        raise UnusableProperties(f"{source}: certificates cannot be read as PEM: {error}") from None
    if given.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif given.get("ssl.endpoint.identification.algorithm", "https").lower() in {"", "none"}:
        context.check_hostname = False
    return context


Exchange = Callable[[bytes], bytes]
"""Sends the client's bytes in SaslAuthenticate and returns the server's."""


class NotAuthenticated(ConnectionError):  # noqa: N818 - what happened
    """The broker, or the client, does not accept the other's proof."""


def authenticate(security: Security, exchange: Exchange) -> None:
    """Log in.

    Raises:
        NotAuthenticated: when the server's proof is wrong.
    """
    if security.mechanism == "PLAIN":
        exchange(f"\0{security.username}\0{security.password}".encode())
        return
    _scram(SCRAM_HASHES[security.mechanism], security.username, security.password, exchange)


def _scram(algorithm: str, username: str, password: str, exchange: Exchange) -> None:
    """RFC 5802, without channel binding."""
    nonce = secrets.token_urlsafe(18)
    escaped = username.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={escaped},r={nonce}"
    first = exchange(f"n,,{bare}".encode()).decode(errors="replace")
    said = _said(first)
    try:
        salt, rounds = base64.b64decode(said["s"]), int(said["i"])
    except (KeyError, ValueError):
        salt, rounds = b"", 0
    if rounds < 1 or not said.get("r", "").startswith(nonce):
        raise NotAuthenticated(f"SCRAM: the server's first message makes no sense: {first!r}")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, rounds)
    final = f"c=biws,r={said['r']}"
    message = f"{bare},{first},{final}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), message, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    last = exchange(f"{final},p={base64.b64encode(proof).decode()}".encode()).decode(errors="replace")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), message, algorithm)
    verifier = _said(last).get("v", "")
    if not hmac.compare_digest(base64.b64encode(expected), verifier.encode()):
        raise NotAuthenticated("SCRAM: the server does not know the password")


def _said(message: str) -> dict[str, str]:
    """The attributes of a message by their letters."""
    parts = (part.partition("=") for part in message.split(","))
    return {letter: value for letter, _, value in parts}
