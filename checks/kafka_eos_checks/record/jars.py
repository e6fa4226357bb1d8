"""The jars that a recording runs: a Kafka broker and its command line tools, fetched by Maven when missing."""

import subprocess
from pathlib import Path

from kafka_eos_checks.paths import CLONE, build_folder
from kafka_eos_checks.terminal import progress_console

KAFKA_VERSION = "4.3.0"
_MAVEN_SECONDS = 600


class NoJars(RuntimeError):  # noqa: N818 - what is missing
    """The Kafka jars are not there and could not be fetched; the message has the remedy."""


def jars_folder() -> Path:
    """Where the Kafka jars are or will be."""
    return build_folder() / "jars" / "kafka"


def have_jars() -> bool:
    """Whether the pinned Kafka jars are there."""
    return clients_jar().is_file() and (jars_folder() / f"kafka_2.13-{KAFKA_VERSION}.jar").is_file()


def clients_jar() -> Path:
    """The jar with the client and the message schemas."""
    return jars_folder() / f"kafka-clients-{KAFKA_VERSION}.jar"


def need_jars() -> Path:
    """The folder of the Kafka jars; Maven fetches them first when they are missing.

    Raises:
        NoJars: when Maven can't.
    """
    folder = jars_folder()
    if have_jars():
        return folder
    command = ["mvn", "-q", "-B", "-P", "kafka", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    progress_console.print(f"fetching Kafka {KAFKA_VERSION}: {' '.join(command)}")
    try:
        subprocess.run(command, cwd=CLONE, check=True, timeout=_MAVEN_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoJars(
            f"no Kafka jars in {folder}, and Maven failed ({error}); run in a clone: {' '.join(command)}"
        ) from None
    if not have_jars():
        raise NoJars(f"{folder} has no Kafka {KAFKA_VERSION} after Maven ran; remove it and run: {' '.join(command)}")
    return folder
