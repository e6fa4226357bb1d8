"""The rules over transactions: the partitions' data and markers, joined with the logs of ``__transaction_state``.

On a partition, a transaction of a producer id begins with its first transactional batch and ends with the next marker
of that producer id. The marker has the data's epoch or the next one: the next one in transaction version 2, and in any
version if the coordinator fences the producer. A marker without data is legal: a partition may have joined a
transaction and got no data, and a restarted coordinator writes its markers again.

A marker does not name its transaction. In transaction version 2 (producer id, marker epoch) identifies the transaction.
Before, all transactions of a producer instance share these, and only the order of the markers distinguishes them. The
markers of a partition have to be those of the coordinator's transactions with that partition, in order: each at least
once, and repeated only without data in between. So a marker that was repeated with the other decision is mistaken for
the marker of the next transaction, if that transaction has this decision and no data on the partition.

``torn transaction``
    A transaction whose markers say COMMIT on one partition and ABORT on another, or both on one. Without the
    coordinator's log it is found only in transaction version 2: a COMMIT and an ABORT of the same epoch that each end
    data of the epoch before; or a COMMIT that does, and a later ABORT, by hand, that has the epoch of these data.

    Or a transaction that is complete, and whose marker a partition does not have. By the protocol the coordinator
    writes COMPLETE only after each partition has its marker. So the partition has lost it, and what came with it. Or
    nobody wrote it: Kafka 4.3 takes a partition without a leader for deleted and completes without its marker (finding
    no-leader-no-marker). Then the data are there, and the next marker of the producer id has ended them. Markers are
    counted by producer id and epoch: there are at least as many as transactions with that epoch are complete. The
    finding is at the end of the log, or, in transaction version 2, at the transaction's data, if a marker with another
    epoch has ended them. Data that are still open are not counted again, because they hang.

``marker without transaction``
    A marker for which the coordinator's log has no PREPARE of that decision with that partition. In the order of the
    markers it may have one later. Then the marker is wrong, or it is the later one's, and the partition lacks those of
    the decisions in between, which the finding names.

    An ABORT that ends data which belongs to none of the coordinator's transactions is *told*: somebody ended a hanging
    transaction by hand (``kafka-transactions abort``). If the data belongs to a transaction that was committed, it is a
    ``torn transaction``. Before transaction version 2 these are the data of the transaction that was open when the
    ABORT was written: an ABORT by hand has the data's epoch, and is older than any decision that it could be of.

``hanging transaction``
    A transaction that is open at the end of the log, although the coordinator's log says that the transaction is
    complete, or has no such transaction. Or a transaction that was decided more than five minutes ago and has no
    marker. Or a transaction that was still open when data of a later epoch came. Or a transaction that is open for
    longer than any transaction may take. Every open transaction is reported with its fate, and with its coordinator's
    decision if that is known (:mod:`decided`).

``fenced producer committed``
    A COMMIT marker that ends data of an epoch below one that InitProducerId had already given: the coordinator's log
    has EMPTY at an epoch above the data's, and not above the marker's. Or a COMMIT marker whose epoch is neither that
    of its data nor the next one: a COMMIT has no other in any version, so it is that of another transaction. An ABORT
    may have a higher epoch, because the coordinator raises the epoch again when it fences a producer.

``marker of an old coordinator``
    A marker with a coordinator epoch below that of an earlier marker of the same producer id on the partition.

``data without transaction``
    A data batch without the transactional bit, of a producer id that a transactional id has or had. Readers of
    committed data get it although the transaction is aborted. A leader refuses it only while the producer has a
    transaction open on the partition (rule ``batch outside transaction``), because it does not know whose producer id
    it is: Kafka 4.3.0 and 3.9.1 accept all others. A log has one finding for each such producer id. In logs of several
    clusters, which mirrored topics need, a producer id is of the cluster that its directory names.

*Not judged*: producer ids that none of the given logs of ``__transaction_state`` names; before transaction version 2,
markers whose coordinator's log or partition is compacted or damaged; markers without data that may belong to more than
:data:`MOST_WAYS` transactions. Nor does a partition with holes or damage miss any marker.

A partition that was created later than a transaction (its topic was deleted and created again) needs none of the
transaction's markers. So a marker is missing if the partition is certainly older: the transaction was decided after
another marker of the partition. Or the log begins at offset 0, and its topic was there, under the same id, before the
transaction can have begun: a partition or replica of this id has a marker of that time, or its ``partition.metadata``
was written by then. Without such evidence this is not judged if the log may be older: if its first timestamp is before
the decision; or if its first batch is not of the topic's first leader epoch, 0, so that the partition was there before,
and may have been emptied and filled again.

*Too recent*: what a log may lack because it was read or copied earlier than the other one (:mod:`moments`).

If a partition is replicated, the longest of the given replicas is read. All logs have to be of one cluster.

Every rule is about single producer ids, so each producer id is judged for itself, on Spark by different workers.
Markers that :mod:`kafka_eos_checks.audit.kernels.coordinators.matching` proves to agree with the coordinator's log are
not given to these rules.

KIP:   KIP-98, KIP-890, KIP-1228
Kafka: ProducerAppendInfo.appendEndTxnMarker, TransactionMarkerChannelManager,
       TransactionsCommand.FindHangingTransactionsCommand

Read ``partitions`` first, then ``matching``; ``judge`` has the whole.
"""
