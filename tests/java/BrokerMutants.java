import java.io.ByteArrayInputStream;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.security.ProtectionDomain;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Predicate;

import javassist.CannotCompileException;
import javassist.ClassPool;
import javassist.CtBehavior;
import javassist.CtClass;
import javassist.LoaderClassPath;
import javassist.expr.ExprEditor;
import javassist.expr.FieldAccess;
import javassist.expr.MethodCall;

/**
 * Mutants of the broker of Kafka 4.3.0: each changes one rule of its bytecode while the class is loaded.
 *
 * <p>As an agent ({@code -javaagent:broker-mutants.jar=NAME}) it makes one mutant. It says on standard error of each
 * changed class "mutant NAME applied to CLASS", and ends the broker if there was nothing to change. As a program it
 * lists all mutants: name, "restart" if only a restart can show it or "level 1" if only a cluster of
 * transaction.version 1 can, classes, and why the changed rule is wrong.
 */
public final class BrokerMutants {
    private static final String LOG = "org.apache.kafka.storage.internals.log.";
    private static final String APPEND = LOG + "ProducerAppendInfo", ENTRY = LOG + "ProducerStateEntry";
    private static final String STATE = LOG + "ProducerStateManager", INDEX = LOG + "TransactionIndex";
    private static final String TRANSACTION = "org.apache.kafka.coordinator.transaction.";
    private static final String METADATA = TRANSACTION + "TransactionMetadata", TABLE = TRANSACTION + "TransactionLog";
    private static final String COORDINATOR = "kafka.coordinator.transaction.TransactionCoordinator";
    private static final String GROUP = "org.apache.kafka.coordinator.group.",
        OFFSETS = GROUP + "OffsetMetadataManager";
    private static final String PENDING = OFFSETS + "$OpenTransactions";
    private static final String CLASSIC = GROUP + "classic.ClassicGroup", MODERN = GROUP + "modern.ModernGroup";
    private static final String CONSUMER = GROUP + "modern.consumer.ConsumerGroup";
    private static final String LOADER = "org.apache.kafka.coordinator.common.runtime.CoordinatorLoaderImpl";
    private static final String REPLAY = "CoordinatorPlayback.replayEndTransactionMarker";
    private static final String COMMIT = "org.apache.kafka.common.requests.TransactionResult.COMMIT";
    private static final String ERRORS = "org.apache.kafka.common.protocol.Errors.";
    private static final String UNCOMMITTED = "new scala.Some(org.apache.kafka.common.IsolationLevel.READ_UNCOMMITTED)";
    private static final String NOBODY_CHECKS = "return"
        + " org.apache.kafka.coordinator.group.CommitPartitionValidator.NO_OP;";
    private static final int NOT_APPLIED = 98, UNKNOWN = 97; // exit codes

    private static final Map<String, Mutant> ALL = new LinkedHashMap<>();

    static {
        leader();
        reading();
        verification();
        coordinator();
        group();
        restart();
    }

    private static void leader() {
        mutant("old-epoch-accepted", "A producer that was fenced writes on.")
            .in(APPEND, first("checkProducerEpoch", "if ($3 == -1) return;"));
        mutant("marker-epoch-unchecked", "A late marker of an earlier transaction ends the present one.")
            .in(APPEND, first("checkProducerEpoch", "if ($3 >= 0) return;"));
        mutant("coordinator-epoch-unchecked", "A coordinator that has been replaced still decides transactions.")
            .in(APPEND, body("checkCoordinatorEpoch", "{}"));
        mutant("gap-accepted", "A lost batch goes unnoticed.")
            .in(APPEND, body("inSequence", "{ return (long) $2 >= (long) $1 + 1L || $2 == 0 && $1 == 2147483647; }"));
        mutant("new-epoch-any-sequence", "The first batch of an epoch can be overtaken, and is lost.")
            .in(APPEND, first("checkSequence", "if ($1 != updatedEntry.producerEpoch()) return;"));
        mutant("window-of-four", "The retry of the fifth batch in flight is refused.")
            .in(ENTRY, first("addBatchMetadata", "if (batchMetadata.size() == 4) batchMetadata.removeFirst();"));
        mutant("duplicate-answers-last-offset", "The retry of an earlier batch is told the offset of the last one.")
            .in(ENTRY, body("findDuplicateBatch",
                "{ if ($1.producerEpoch() != producerEpoch) return java.util.Optional.empty();"
                + " java.util.Optional found = batchWithSequenceRange($1.baseSequence(), $1.lastSequence());"
                + " return found.isPresent() ? java.util.Optional.of(batchMetadata.getLast()) : found; }"));
        mutant("duplicate-by-first-sequence", "A longer batch passes for a retry, and its last records are lost.")
            .in(ENTRY, body("batchWithSequenceRange",
                "{ java.util.Iterator all = batchMetadata.iterator(); while (all.hasNext()) {"
                + " org.apache.kafka.storage.internals.log.BatchMetadata each ="
                + " (org.apache.kafka.storage.internals.log.BatchMetadata) all.next();"
                + " if (each.firstSeq() == $1) return java.util.Optional.of(each); } return"
                + " java.util.Optional.empty(); }"));
        mutant("duplicate-ignores-epoch",
            "The first batch of a new epoch passes for a retry of the epoch before, and is lost.")
            .in(ENTRY, body("findDuplicateBatch",
                "{ return batchWithSequenceRange($1.baseSequence(), $1.lastSequence()); }"));
        mutant("marker-keeps-epoch", "A marker with a higher epoch does not fence the producer.")
            .in(APPEND, calls("appendEndTxnMarker", "ProducerStateEntry.update",
                "{ $0.update($0.producerEpoch(), $2, $3); }"));
        mutant("plain-batch-in-transaction",
            "A batch outside of transactions is taken into an open one, and may be aborted.")
            .in(APPEND, first("appendDataBatch", "if (!$7 && updatedEntry.currentTxnFirstOffset().isPresent()) {"
                + " maybeValidateDataBatch($1, $2, $5.messageOffset);"
                + " updatedEntry.addBatch($1, $3, $6, (int) ($6 - $5.messageOffset), $4); return; }"));
        mutant("sequence-wrap-refused", "A producer is stopped after 2^31 records.")
            .in(APPEND, body("inSequence", "{ return (long) $2 == (long) $1 + 1L; }"));
    }

    private static void reading() {
        mutant("stable-offset-of-newest-transaction", "Readers pass an open transaction.")
            .in(STATE, reads("firstUnstableOffset", "ongoingTxns",
                "{ $_ = new java.util.TreeMap($0.ongoingTxns.isEmpty()"
                + " ? (java.util.Map) $0.ongoingTxns : (java.util.Map)"
                + " $0.ongoingTxns.tailMap($0.ongoingTxns.lastKey())); }"));
        mutant("index-entry-without-other-transactions",
            "The search for aborted transactions ends too early: aborted records are read.")
            .in(STATE, body("lastStableOffset", "{ return $1.lastOffset() + 1L; }"));
        mutant("index-entry-counts-its-own",
            "The entry of an aborted transaction has a last stable offset that is too low.")
            .in(STATE, body("lastStableOffset", "{ return ongoingTxns.isEmpty() ? $1.lastOffset() + 1L :"
                + " ((org.apache.kafka.storage.internals.log.TxnMetadata)"
                + " ongoingTxns.firstEntry().getValue()).firstOffset.messageOffset; }"));
        mutant("aborted-only-since-offset", "A reader in the middle of an aborted transaction is given the rest of it.")
            .in(INDEX, calls("collectAbortedTxns", "AbortedTxn.lastOffset", "{ $_ = $0.firstOffset(); }"));
        mutant("aborted-in-first-segment-only", "A reader is given aborted records whose marker is in a later segment.")
            .in(LOG + "LocalLog", calls("collectAbortedTransactions", "TxnIndexSearchResult.isComplete",
                "{ $_ = true; }"));
        mutant("latest-offset-ignores-isolation", "A reader of committed data begins behind an open transaction.")
            .in("kafka.cluster.Partition", first("fetchOffsetForTimestamp",
                "if ($2.isDefined()) $2 = " + UNCOMMITTED + ";"));
        mutant("timestamp-beyond-stable-offset", "A reader of committed data is sent to records that are not decided.")
            .in("kafka.cluster.Partition", first("fetchOffsetForTimestamp",
                "if ($1 >= 0L && $2.isDefined()) $2 = " + UNCOMMITTED + ";"));
    }

    private static void verification() {
        mutant("no-guard-check", "A batch that comes after its transaction opens a new one, which hangs (KAFKA-14402).")
            .in(LOG + "UnifiedLog", body("batchMissingRequiredVerification", "{ return false; }"));
        mutant("guard-survives-append", "An old verification vouches for a batch of a later transaction.")
            .in(STATE, body("clearVerificationStateEntry", "{}"));
        mutant("any-partition-vouched-for",
            "A batch opens a transaction that its coordinator does not know, and never ends.")
            .in(COORDINATOR, calls("*", "Set.contains", "{ $_ = true; }"));
        mutant("one-ack-not-verified", "A batch that waits for no replica cannot begin its transaction.")
            .in("kafka.server.ReplicaManager", first("handleProduceAppend", "if ($2 == 1) $4 = null;"));
        mutant("vouched-for-while-prepared",
            "A batch that comes after the decision is appended, perhaps behind the marker.")
            .in(COORDINATOR, calls("*handleVerifyPartitionsInTransaction*", "TransactionMetadata.state",
                "{ $_ = " + TRANSACTION + "TransactionState.ONGOING; }"));
    }

    private static void coordinator() {
        mutant("init-commits", "A new producer commits what the one before has left open.")
            .in(COORDINATOR, reads("handleInitProducerId", "ABORT", "{ $_ = " + COMMIT + "; }"));
        mutant("init-does-not-bump", "Two producers have the same epoch, and neither is fenced.")
            .in(METADATA, first("prepareIncrementProducerEpoch",
                "if ($2.isEmpty() && this.producerEpoch >= 0) $2 ="
                    + " java.util.Optional.of(Short.valueOf(this.lastProducerEpoch));"));
        mutant("init-retry-fenced", "A producer whose answer was lost is fenced by its own retry.")
            .in(METADATA, first("prepareIncrementProducerEpoch", "if ($2.isPresent() && this.producerEpoch != -1"
                + " && ((Short) $2.get()).shortValue() != this.producerEpoch) throw"
                + " " + ERRORS + "PRODUCER_FENCED.exception();"));
        mutant("init-any-expected-epoch", "A fenced producer gets a valid epoch again.")
            .in(METADATA, first("prepareIncrementProducerEpoch", "$2 = java.util.Optional.empty();"));
        mutant("end-opposite-accepted", "A producer is told that it has committed what was aborted.")
            .in(COORDINATOR, body("logInvalidStateTransitionAndReturnError",
                "{ return new scala.util.Left(" + ERRORS + "NONE); }"));
        mutant("end-retry-concurrent", "A producer repeats a request for ever that can never succeed.")
            .in(COORDINATOR, body("logInvalidStateTransitionAndReturnError",
                "{ return new scala.util.Left(" + ERRORS + "CONCURRENT_TRANSACTIONS); }"));
        mutant("epoch-exhausted-too-late", "The last epoch is given out, and no later one can fence it.")
            .in(METADATA, body("isEpochExhausted", "{ return $1 >= 32767; }"));
        mutant("add-replaces", "A partition that was added before gets no marker: its transaction hangs.")
            .in(METADATA, both(calls("prepareAddPartitions", "HashSet.addAll",
                "{ if ($1.size() > 0) $0.clear(); $_ = $proceed($$); }"),
                calls("completeTransitionTo", "Set.containsAll", "{ $_ = true; }")));
        mutant("timeout-ignored", "A transaction of a producer that is gone holds readers back for ever.")
            .in("kafka.coordinator.transaction.TransactionStateManager", body("timedOutTransactions",
                "{ return scala.collection.immutable.Nil$.MODULE$; }"));
        mutant("timeout-commits", "Half of a transaction is committed, because its producer is gone.")
            .in(COORDINATOR, reads("*abortTimedOut*", "ABORT", "{ $_ = " + COMMIT + "; }"));
        mutant("fence-does-not-bump", "A producer that was fenced by an abort may go on in its epoch.")
            .in(METADATA, first("prepareFenceProducerEpoch", "this.hasFailedEpochFence = true;"))
            .levelOne();
        mutant("any-producer-id-expected", "A producer whose id was replaced gets the new one.")
            .in(COORDINATOR, body("isValidProducerId$1", "{ return true; }"));
        mutant("any-timeout-allowed", "A transaction that its producer leaves open holds readers back for weeks.")
            .in("kafka.coordinator.transaction.TransactionStateManager", body("validateTransactionTimeoutMs",
                "{ return true; }"));
        mutant("known-partition-added", "A request that fails for one of its partitions adds the other one.")
            .in("kafka.server.KafkaApis", calls("*handleAddPartitionsToTxnRequest$3", "mutable.Map.nonEmpty",
                "{ $_ = false; }"));
        mutant("init-while-pending", "A request meets a transition that is not in the log yet.")
            .in(METADATA, body("pendingTransitionInProgress", "{ return false; }"));
        mutant("same-id-twice", "Two producers share an id, and take each other's batches for duplicates.")
            .in(TRANSACTION + "RPCProducerIdManager",
                changer -> changer.getDeclaredMethod("generateProducerId").insertAfter("{ $_ = $_ - $_ % 2; }"));
        mutant("init-keeps-old-timeout", "A producer's transactions time out as its predecessor wanted.")
            .in(METADATA, first("prepareIncrementProducerEpoch",
                "if (this.producerEpoch >= 0) $1 = this.txnTimeoutMs;"));
        mutant("end-does-not-bump", "A late end or marker decides the producer's next transaction (KAFKA-17754).")
            .in(METADATA, writes("prepareAbortOrCommit", "producerEpoch", "{}"));
    }

    private static void group() {
        mutant("offset-visible-early", "A group goes on behind inputs whose outputs are aborted.")
            .in(OFFSETS, first("replay", "if ($2 != -1L && $4 != null) replay($1, -1L, $3, $4);"));
        mutant("abort-commits-offset", "A group goes on behind inputs whose outputs were aborted.")
            .in(OFFSETS, first("replayEndTransactionMarker", "$2 = " + COMMIT + ";"));
        mutant("require-stable-ignored",
            "A consumer reads an offset that a transaction is about to move, and processes twice.")
            .in(OFFSETS, reads("fetchOffsets", "openTransactions", "{ $_ = null; }"))
            .in(PENDING, body("add", "{ return true; }"));
        mutant("require-stable-ignored-for-all", "Who asks for all partitions is told an offset that is about to move.")
            .in(OFFSETS, second("fetchAllOffsets", "get", "{ $_ = null; }"));
        mutant("classic-member-not-fenced", "A former member of a classic group commits offsets in a transaction.")
            .in(CLASSIC, first("validateOffsetCommit", "if ($4) " + NOBODY_CHECKS));
        mutant("consumer-not-fenced", "A former member of a group of KIP-848 commits offsets in a transaction.")
            .in(CONSUMER, first("validateOffsetCommit", "if ($4) " + NOBODY_CHECKS));
        mutant("consumer-not-fenced-outside", "A former member of a group of KIP-848 commits offsets.")
            .in(CONSUMER, first("validateOffsetCommit", "if (!$4) " + NOBODY_CHECKS));
        mutant("static-member-not-fenced", "A static member that was replaced commits offsets.")
            .in(CLASSIC, first("validateMember", "$2 = null;"));
        mutant("first-group-only", "Of two groups in a transaction one processes its inputs again.")
            .in(OFFSETS, calls("replayEndTransactionMarker", "TimelineHashMap.forEach",
                "{ java.util.Iterator all = $0.entrySet().iterator(); if (all.hasNext()) {"
                + " java.util.Map.Entry each = (java.util.Map.Entry) all.next();"
                + " $1.accept(each.getKey(), each.getValue()); } }"));
        mutant("older-pending-wins", "A transaction that ends late sets the offset back.")
            .in(OFFSETS, calls("lambda$replayEndTransactionMarker$*", "$Offsets.get", "{ $_ = null; }"));
        mutant("first-end-makes-stable", "The offset passes for stable while another transaction is open.")
            .in(PENDING, body("remove", "{ clear($1, $2, $3); return true; }"));
        mutant("delete-leaves-pending", "An offset that was deleted comes back with the marker.")
            .in(PENDING, body("forEach", "{}"));
        mutant("offset-of-classic-members-deleted",
            "A consumer at work loses its offset, and begins anew after the next rebalance.")
            .in(CLASSIC, body("isSubscribedToTopic", "{ return false; }"));
        mutant("offset-of-consumers-deleted", "A consumer at work in a group of KIP-848 loses its offset.")
            .in(MODERN, body("isSubscribedToTopic", "{ return false; }"));
    }

    private static void restart() {
        mutant("snapshot-without-open-transaction", "After a restart readers pass an open transaction.")
            .in(STATE, calls("writeSnapshot", "ProducerStateEntry.currentTxnFirstOffset",
                "{ $_ = java.util.OptionalLong.empty(); }"))
            .restarts();
        mutant("snapshot-without-sequence", "After a restart no retry is recognised.")
            .in(STATE, calls("writeSnapshot", "ProducerStateEntry.lastDataOffset", "{ $_ = -1L; }"))
            .restarts();
        mutant("snapshot-of-epoch-zero", "After a restart nobody is fenced.")
            .in(STATE, calls("writeSnapshot", "ProducerStateEntry.producerEpoch", "{ $_ = (short) 0; }"))
            .restarts();
        mutant("snapshot-without-coordinator-epoch", "After a restart a former coordinator decides transactions.")
            .in(STATE, calls("writeSnapshot", "ProducerStateEntry.coordinatorEpoch", "{ $_ = -1; }"))
            .restarts();
        mutant("transaction-index-lost", "After a restart aborted records are read.")
            .in(INDEX, changer -> {
                for (CtBehavior each : changer.getDeclaredConstructors()) each.insertBefore("$2.delete();");
            })
            .restarts();
        mutant("coordinator-forgets-partitions", "After a restart the open transactions get no markers.")
            .in(TABLE, calls("read", "TransactionLogValue.transactionPartitions",
                "{ $_ = new java.util.ArrayList(); }"))
            .restarts();
        mutant("coordinator-forgets-version", "After a restart transactions end by the rules of version 1.")
            .in(TABLE, calls("read", "TransactionLogValue.clientTransactionVersion", "{ $_ = (short) 0; }"))
            .restarts();
        mutant("loading-drops-commits", "After a restart a group processes inputs again.")
            .in(LOADER, calls("processMemoryRecords", REPLAY, "{}"))
            .restarts();
        mutant("loading-commits-aborts", "After a restart a group goes on behind inputs whose outputs were aborted.")
            .in(LOADER, calls("processMemoryRecords", REPLAY, "{ $_ = $proceed($1, $2, " + COMMIT + "); }"))
            .restarts();
    }

    // --- how a class is changed --------------------------------------------------------------------------------------

    /** Changes a class, or throws an exception that says what was not there. */
    private interface Edit {
        void change(CtClass changer) throws Exception;
    }

    /** One changed rule. */
    private static final class Mutant {
        private final String wrong;
        private final Map<String, Edit> edits = new LinkedHashMap<>();
        private String needs = "";

        private Mutant(String wrong) {
            this.wrong = wrong;
        }

        private Mutant in(String changed, Edit edit) {
            edits.put(changed, edit);
            return this;
        }

        private void restarts() {
            needs = "restart";
        }

        private void levelOne() {
            needs = "level 1";
        }
    }

    private static Mutant mutant(String name, String wrong) {
        Mutant made = new Mutant(wrong);
        if (ALL.put(name, made) != null) throw new IllegalStateException("twice: " + name);
        return made;
    }

    /** Code before all else in the methods of that name. */
    private static Edit first(String method, String code) {
        return each(method, behavior -> {
            behavior.insertBefore(code);
            return 1;
        });
    }

    /** Code instead of the methods of that name. */
    private static Edit body(String method, String code) {
        return each(method, behavior -> {
            behavior.setBody(code);
            return 1;
        });
    }

    /** Code instead of the calls of {@code Class.callee} in the methods of that name. */
    private static Edit calls(String method, String callee, String code) {
        int dot = callee.lastIndexOf('.');
        return replaced(method, call -> call.getClassName().endsWith(callee.substring(0, dot))
            && call.getMethodName().equals(callee.substring(dot + 1)), 0, code);
    }

    /** Code instead of the second call of a method. */
    private static Edit second(String method, String callee, String code) {
        return replaced(method, call -> call.getMethodName().equals(callee), 2, code);
    }

    private static Edit replaced(String method, Predicate<MethodCall> isMeant, int only, String code) {
        return each(method, behavior -> {
            int[] met = {0, 0};
            behavior.instrument(new ExprEditor() {
                @Override
                public void edit(MethodCall call) throws CannotCompileException {
                    if (!isMeant.test(call) || only != 0 && ++met[0] != only) return;
                    call.replace(code);
                    met[1]++;
                }
            });
            return met[1];
        });
    }

    private static Edit reads(String method, String field, String code) {
        return accesses(method, field, FieldAccess::isReader, code);
    }

    private static Edit writes(String method, String field, String code) {
        return accesses(method, field, FieldAccess::isWriter, code);
    }

    private static Edit accesses(String method, String field, Predicate<FieldAccess> isMeant, String code) {
        return each(method, behavior -> {
            int[] met = {0};
            behavior.instrument(new ExprEditor() {
                @Override
                public void edit(FieldAccess access) throws CannotCompileException {
                    if (!access.getFieldName().equals(field) || !isMeant.test(access)) return;
                    access.replace(code);
                    met[0]++;
                }
            });
            return met[0];
        });
    }

    private static Edit both(Edit one, Edit other) {
        return changer -> {
            one.change(changer);
            other.change(changer);
        };
    }

    /** Changes one method, and returns at how many places. */
    private interface Change {
        int at(CtBehavior behavior) throws Exception;
    }

    /** Changes the methods of a name, in which * stands for any letters. */
    private static Edit each(String name, Change change) {
        String pattern = name.replace("$", "\\$").replace("*", ".*");
        return changer -> {
            int changed = 0;
            for (CtBehavior behavior : changer.getDeclaredBehaviors())
                if (behavior.getName().matches(pattern)) changed += change.at(behavior);
            if (changed == 0) throw new IllegalStateException("nothing to change in " + changer.getName() + "." + name);
        };
    }

    // --- the agent, and the list -------------------------------------------------------------------------------------

    public static void premain(String name, Instrumentation instrumentation) {
        Mutant mutant = ALL.get(name);
        if (mutant == null) {
            System.err.println("mutant " + name + " is unknown");
            Runtime.getRuntime().halt(UNKNOWN);
        }
        instrumentation.addTransformer(new ClassFileTransformer() {
            @Override
            public byte[] transform(ClassLoader loader, String path, Class<?> before, ProtectionDomain domain,
                byte[] bytes) {
                String loaded = path == null ? "" : path.replace('/', '.');
                Edit edit = mutant.edits.get(loaded);
                if (edit == null) return null;
                try {
                    ClassPool pool = new ClassPool();
                    pool.appendClassPath(new LoaderClassPath(loader));
                    CtClass changer = pool.makeClass(new ByteArrayInputStream(bytes));
                    edit.change(changer);
                    byte[] changed = changer.toBytecode();
                    System.err.println("mutant " + name + " applied to " + loaded);
                    return changed;
                } catch (Throwable thrown) {
                    System.err.println("mutant " + name + " not applied: " + thrown);
                    Runtime.getRuntime().halt(NOT_APPLIED);
                    return null;
                }
            }
        });
    }

    public static void main(String[] arguments) {
        ALL.forEach((name, mutant) -> System.out.println(
            String.join("\t", name, mutant.needs, String.join(",", mutant.edits.keySet()),
                mutant.wrong)));
    }
}
