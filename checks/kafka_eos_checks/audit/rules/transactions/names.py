"""The names of the rules over transactions, the words of their findings, and why something is not judged."""

from kafka_eos_checks.audit.rules.log import Reason

TORN, HANGING, NO_TRANSACTION = "torn transaction", "hanging transaction", "marker without transaction"
FENCED, OLD_COORDINATOR = "fenced producer committed", "marker of an old coordinator"
NO_BIT = "data without transaction"
TRANSACTION_RULES = (TORN, HANGING, NO_TRANSACTION, FENCED, OLD_COORDINATOR, NO_BIT)
LACKS_END = "lacks its end"  # of a log, in the evidence about a transaction that is open there
OF_MARKERS = (TORN, NO_TRANSACTION, OLD_COORDINATOR)  # the rules that look at every marker
UNKNOWN, RECENT = "unknown", "recent"  # names of figures
FIRST_LEADER = 0  # the leader epoch of a partition that was made just now
WITHOUT_MARKER, OUT_OF_TURN = "the log ends without", "this partition has no"  # words of findings
AS_BY_HAND, BY_ANOTHER = "as `kafka-transactions abort` writes it", "which is of another transaction"  # likewise
SHOWN_NUMBERS = 5  # the most transactions that a finding names
MOST_WAYS = 64  # of assigning the markers of a partition to transactions; with more of them it is unknown
# Why something cannot be judged, and what the user could give.
NO_STATE_LOG = Reason("no-coordinator-log", "no log of __transaction_state was given")
EMPTY_STATE_LOG = Reason(
    "no-coordinator-log", "the given logs of __transaction_state are empty: lost, or from before the first transaction"
)
OWNER_UNKNOWN = Reason(
    "unknown-producer",
    "no given log of __transaction_state names their producer; give the logs of all brokers, or from before its "
    "transactional id expired or the log was lost",
)
STATE_COMPACTED = Reason("compacted", "their log of __transaction_state was compacted; give a copy from before that")
END_DAMAGED = Reason(
    "damaged", "the end of their partition's log cannot be read and may have had their markers; give another replica"
)
STATE_DAMAGED = Reason("damaged", "their log of __transaction_state is damaged; give another replica of it")
HOLES = Reason(
    "compacted",
    "their partition was compacted or has holes; and their data are gone, or they are of before transaction version 2, "
    "where an epoch identifies no transaction",
)
MADE_AGAIN = Reason(
    "made-again",
    "their topic may have been deleted and created again after the transactions in the coordinator's log, or this log "
    "was emptied",
)
AMBIGUOUS = Reason("ambiguous", f"they end no data, and each may belong to any of more than {MOST_WAYS} transactions")
OPEN_BEHIND_HOLE = Reason("compacted", "a hole in their partition may have had their markers; give another replica")
COMMITTED_BEHIND_HOLE = Reason(
    "compacted",
    "a hole in their partition may have had their marker, and the data of another one; give another replica",
)
OPEN_WITHOUT_LOG = Reason("no-coordinator-log", "open, and no log of __transaction_state shows who will end them")
OPEN_OF_NOBODY = Reason("unknown-producer", "open, and no given log of __transaction_state names their producer")
OTHER_MOMENT = Reason(
    "other-moment",
    "the other log may be an older copy; audit the directory in place, or copy it with `cp -a`, which keeps the times "
    "of files, or say --snapshot if the brokers stood still",
)
INCOMPLETE = Reason(
    "incomplete",
    "a log that they depend on lacks its end: it ends below its high watermark, or its last segment is missing, packed "
    "or a link; copy it to its end, or give another replica",
)
