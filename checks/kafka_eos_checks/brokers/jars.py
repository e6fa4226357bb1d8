"""The jars that a recording runs: a Kafka broker and its command line tools, fetched by Maven when missing."""

import subprocess
from pathlib import Path

from kafka_eos_checks.kit.missing import Missing
from kafka_eos_checks.kit.paths import build_folder, pom_file
from kafka_eos_checks.kit.terminal import progress_console

KAFKA_VERSION = "4.3.0"
NEWEST = "4.4.0"  # it has the rules of KAFKA_VERSION (spec/releases.toml)
# Each release with its profile in pom.xml, which is also its folder of jars.
RELEASES = {KAFKA_VERSION: "kafka", NEWEST: "kafka-4.4", "3.9.1": "kafka-3.9", "2.8.2": "kafka-2.8"}
RECORDED = (KAFKA_VERSION, NEWEST, "3.9.1")  # those that describe transactions, which the recorder waits for
WITH_ZOOKEEPER = frozenset({"2.8.2"})
_MAVEN_SECONDS = 600
_STANDARD_ERROR = 2  # where Maven writes, for standard output has answers only


class NoJars(Missing):
    """The Kafka jars are not there and could not be fetched; the message has the remedy."""


def jars_folder(kafka: str = KAFKA_VERSION) -> Path:
    """The folder in which the jars of a Kafka release are or will be."""
    return build_folder() / "jars" / RELEASES[kafka]


def have_jars(kafka: str = KAFKA_VERSION) -> bool:
    """Whether the pinned jars of a Kafka release are there."""
    return all((jars_folder(kafka) / f"{name}-{kafka}.jar").is_file() for name in ("kafka-clients", "kafka_2.13"))


def streams_folder() -> Path:
    """The folder in which the jars of Kafka Streams and of its tests are or will be, by profile ``streams``."""
    return build_folder() / "jars" / "streams"


def have_streams_jars() -> bool:
    """Whether the pinned jars of Kafka Streams and of its tests are there."""
    jars = ("kafka-streams-{}.jar", "kafka-streams-{}-test.jar", "kafka-clients-{}-test.jar")
    return all((streams_folder() / jar.format(KAFKA_VERSION)).is_file() for jar in jars)


def tests_folder() -> Path:
    """The folder in which the jars of Kafka's own tests are or will be, by profile ``kafka-tests``."""
    return build_folder() / "jars" / "kafka-tests"


def have_tests_jars() -> bool:
    """Whether the pinned jars of Kafka's own tests are there."""
    return (tests_folder() / f"kafka_2.13-{KAFKA_VERSION}-test.jar").is_file()


def clients_jar(kafka: str = KAFKA_VERSION) -> Path:
    """The jar with the message schemas of a release; an earlier one's messages are among :data:`KAFKA_VERSION`'s."""
    release = NEWEST if kafka == NEWEST else KAFKA_VERSION
    return jars_folder(release) / f"kafka-clients-{release}.jar"


def need_jars(kafka: str = KAFKA_VERSION) -> Path:
    """The folder of a Kafka release's jars; Maven fetches them first when they are missing.

    Raises:
        NoJars: when Maven can't.
    """
    folder = jars_folder(kafka)
    if not have_jars(kafka):
        _fetch(f"Kafka {kafka}", RELEASES[kafka], folder)
    if not have_jars(kafka):
        raise NoJars(f"{folder} has no Kafka {kafka} after Maven ran; remove it and try again")
    return folder


def need_tests_jars() -> Path:
    """The folder of the jars of Kafka's own tests; Maven fetches them first when they are missing.

    Raises:
        NoJars: when Maven can't.
    """
    folder = tests_folder()
    if not have_tests_jars():
        _fetch(f"the tests of Kafka {KAFKA_VERSION}", folder.name, folder)
    if not have_tests_jars():
        raise NoJars(f"{folder} has no tests of Kafka {KAFKA_VERSION} after Maven ran; remove it and try again")
    return folder


def _fetch(what: str, profile: str, folder: Path) -> None:
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    command = ["mvn", "-q", "-B", "-f", str(pom_file()), "-P", profile, *goal]
    progress_console.print(f"fetching {what}: {' '.join(command)}")
    try:
        subprocess.run(command, check=True, timeout=_MAVEN_SECONDS, stdin=subprocess.DEVNULL, stdout=_STANDARD_ERROR)
    except (OSError, subprocess.SubprocessError) as error:
        wrong = f"no jars of {what} in {folder}, and Maven failed ({error})"
        raise NoJars(f"{wrong}; install Maven and a JDK, and run: {' '.join(command)}") from None
