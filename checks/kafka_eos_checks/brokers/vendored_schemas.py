"""The schemas that the server carries, out of Kafka's jars (``make schemas``).

They are those of the pinned release, except the APIs that are served as the newest release has them.
"""

import json
import re
import zipfile
from pathlib import Path

from kafka_eos.server import schemas
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST, need_jars

TARGET = Path(schemas.__file__).with_name(schemas.FILE)


def schemas_of(path: Path) -> dict[str, Message]:
    """The schemas of messages in a jar, by their names."""
    found: dict[str, Message] = {}
    with zipfile.ZipFile(path) as jar:
        for name in jar.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                schema = json.loads(re.sub(r"(?m)^\s*//.*$", "", jar.read(name).decode()))
                found[schema["name"]] = schema
    return found


def from_jars() -> str:
    """The expected content of the file, by the jars of both releases."""
    folder = need_jars()
    found: dict[str, Message] = {}
    for jar_name in ("kafka-group-coordinator", "kafka-clients"):
        found |= schemas_of(folder / f"{jar_name}-{KAFKA_VERSION}.jar")
    found |= of_newest()
    return schemas.compact(found[name] for name in schemas.messages())


def of_newest() -> dict[str, Message]:
    """The messages that are served as the newest release has them."""
    found = schemas_of(need_jars(NEWEST) / f"kafka-clients-{NEWEST}.jar")
    return {name: found[name] for name in schemas.of_newest()}


def main() -> None:
    """Write the file."""
    text = from_jars()
    TARGET.write_text(text, encoding="utf-8")
    print(f"{TARGET}: {len(schemas.messages())} messages of Kafka {KAFKA_VERSION}, {len(text)} bytes")


if __name__ == "__main__":
    main()
