"""A broker in the process of a test: it starts in milliseconds, fails on demand, and is audited afterwards.

The server is ``kafka_eos.server.threaded``; this adds the question that a test is about.
"""

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kafka_eos.machines.leader import LeaderRules
from kafka_eos.server.cluster import Machines, Settings
from kafka_eos.server.faults import Faults, check_brokers, read_plan
from kafka_eos.server.network import MovableClock
from kafka_eos.server.threaded import ServedCluster
from kafka_eos.server.transactions import TransactionSettings
from kafka_eos_checks.brokers.wire_events import IN_TEST
from kafka_eos_checks.testing.history import HistoryFile

if TYPE_CHECKING:
    from kafka_eos_checks.testing.exactly_once import Identity, OutputsPerInput
    from kafka_eos_checks.testing.observations import Met

HISTORY, DATA = "history.jsonl", "data"
VERSIONS = (0, 1, 2)  # of transaction.version
POLL_SECONDS = 0.05


class NotExactlyOnce(AssertionError):  # noqa: N818 - named for what is not so
    """The findings of an audit; the message has the findings, the diagram and the files."""


class ExactlyOnceWarning(UserWarning):
    """Something is dangerous although no input was lost or processed twice."""


class InProcessBroker(ServedCluster):
    """A cluster on loopback, kept in files, whose requests are written down.

    Args:
        folder: where the files go; an empty or a new one.
        brokers: logical brokers.
        transaction_version: the cluster's: 0, 1 or 2.
        verification: leaders ask coordinators about old clients' transactions (KIP-890 part 1).
        faults: a plan of faults; None for none.
        seed: the seed of its chances.

    Attributes:
        met: of each passed assertion about an application, the situations that this met.

    Raises:
        ValueError: there is no such transaction version, or no broker at all, or the folder has files of another
            broker, which may still run: its history would be lost, and its logs judged without it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 1,
        transaction_version: int = 2,
        verification: bool = True,
        faults: Path | None = None,
        seed: int | str = 0,
    ) -> None:
        if transaction_version not in VERSIONS:
            raise ValueError(f"transaction_version={transaction_version!r}; there are {', '.join(map(str, VERSIONS))}")
        if brokers < 1:
            raise ValueError(f"brokers={brokers!r}; give 1 or more")
        self.folder = folder
        self.seed = seed
        self.met: list[Met] = []
        folder.mkdir(parents=True, exist_ok=True)
        for former in (folder / HISTORY, folder / DATA):
            if former.exists():
                raise ValueError(f"{folder} has {former.name} of another broker; give an empty or a new folder")
        rules = read_plan(Path(faults).read_text(encoding="utf-8"), str(faults)) if faults is not None else []
        check_brokers(rules, brokers, str(faults))
        self._history = (folder / HISTORY).open("w", buffering=1, encoding="utf-8")
        clock = MovableClock()
        self._seen = HistoryFile(self._history, IN_TEST, clock)
        super().__init__(
            brokers,
            settings=Settings(transactions=TransactionSettings(version=transaction_version)),
            machines=Machines(leaders=LeaderRules(verification=verification)),
            data=folder / DATA,
            faults=Faults(rules, seed),
            observer=self._seen,
            clock=clock,
        )

    def start(self) -> Self:
        """Start serving.

        Raises:
            DamagedLog, OSError: it cannot.
        """
        try:
            return super().start()
        except BaseException:
            self._history.close()
            raise

    def stop(self) -> None:
        """Stop serving."""
        super().stop()
        self._history.close()

    def wait_until_read(self, *, inputs: str | Sequence[str], group: str, seconds: float = 30.0) -> bool:
        """Wait until a group has committed an offset past every committed record of its inputs.

        An application that never ends by itself can be stopped then. :meth:`assert_exactly_once` judges it afterwards,
        also if this has waited in vain.

        Args:
            inputs: the topics that the application reads.
            group: its consumer group; it need not be there yet.
            seconds: how long to wait at most.

        Returns:
            Whether the group has come so far in that time.

        Raises:
            ValueError: there is no such topic; says which there are.
        """
        from kafka_eos_checks.testing.exactly_once import Progress  # noqa: PLC0415 - numpy is slow to start

        progress = Progress(self.folder / DATA, [inputs] if isinstance(inputs, str) else list(inputs), group)
        end = time.monotonic() + seconds
        while not self.call(lambda server: progress.is_past_all(server.cluster)):
            if time.monotonic() >= end:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def assert_exactly_once(
        self,
        *,
        inputs: str | Sequence[str] = (),
        outputs: str | Sequence[str] = (),
        group: str | None = None,
        identity: "Identity | None" = None,
        everything: bool = True,
        outputs_per_input: "OutputsPerInput | None" = None,
    ) -> "Met | None":
        """Audit what was written; with inputs, outputs and a group also whether each input took effect once.

        Args:
            inputs: the topics that the application reads.
            outputs: the topics that it writes; an input has an output in each.
            group: its consumer group.
            identity: a function that gives the common identity of an input and its output; without it, their value. It
                is given a ``StoredRecord`` (topic, partition, offset, key, value, headers). A tuple of two also says
                which output it is, if an input has several in a topic. None: the record is not looked at.
            everything: every input has to be processed; if not, only those before the group's offset.
            outputs_per_input: the number of outputs of each input in each topic of outputs, or a function that gives it
                for an input; without it, an input of which one of several outputs is missing is not found.

        The question is written into the history, so that ``kafka-eos audit`` of the folder judges the same.

        Returns:
            The situations that the application met (aborts, refusals, rebalances), so that a test can ask that its run
            met what it is about; None without an application.

        Raises:
            NotExactlyOnce: something was found. The message says what it means and what to do, and names a diagram of
                the requests that led up to it.
            ValueError: the question has no answer: there is no such topic or group, or the identities join nothing, or
                the identity of a record fails.

        Warns:
            ExactlyOnceWarning: something is dangerous although no input was lost or processed twice, or it is not known
                whether outputs have an input.
        """
        from kafka_eos_checks.audit.rules.declared import WrongQuestion  # noqa: PLC0415 - numpy is slow to start
        from kafka_eos_checks.testing.exactly_once import Application, by_value, examine  # noqa: PLC0415

        __tracebackhide__ = True  # pytest shows the line of the test
        topics = [[each] if isinstance(each, str) else list(each) for each in (inputs, outputs)]
        given = [bool(topics[0]), bool(topics[1]), group is not None]
        if any(given) and not all(given):
            raise ValueError("inputs, outputs and group belong together; give all of them, or none")
        application = None
        if group is not None:
            application = Application(
                inputs=topics[0],
                outputs=topics[1],
                group=group,
                identity=identity or by_value,
                everything=everything,
                outputs_per_input=outputs_per_input,
            )
        # in the server's thread: between two requests no log is half-written
        try:
            found = self.call(lambda server: examine(self.folder, server.cluster, application, self._seen))
        except WrongQuestion as error:
            raise error.with_traceback(None) from error.__cause__
        if found.failure:
            faults = [f"fault:    {tally.in_words()}" for tally in self.faults.tallies]
            raise NotExactlyOnce("\n".join([found.failure, *(f"warning:  {each}" for each in found.warnings), *faults]))
        for each in found.warnings:
            warnings.warn(each, ExactlyOnceWarning, stacklevel=2)
        self.met += [found.met] if found.met is not None else []
        return found.met
