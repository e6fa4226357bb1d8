from kafka_eos.errors import ErrorCode
from kafka_eos.server.error_counters import ErrorCounters


def test_a_broker_counts_errors_of_every_partition_and_no_success() -> None:
    counters = ErrorCounters()
    partition = {"Index": 0, "ErrorCode": int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), "BaseOffset": -1}
    counters.count("Produce", {"Responses": [{"Name": "t", "PartitionResponses": [partition, dict(partition)]}]})
    counters.count("EndTxn", {"ErrorCode": int(ErrorCode.NONE)})
    counters.count("EndTxn", {"ErrorCode": int(ErrorCode.CONCURRENT_TRANSACTIONS), "Nodes": [1, 2]})
    counters.count("EndTxn", {"ErrorCode": 9999})
    added = {"PartitionIndex": 0, "PartitionErrorCode": int(ErrorCode.CONCURRENT_TRANSACTIONS)}
    results = [{"Name": "t", "ResultsByPartition": [added] * 3}]
    counters.count("AddPartitionsToTxn", {"ResultsByTopicV3AndBelow": results})
    assert counters.lines() == [
        "AddPartitionsToTxn CONCURRENT_TRANSACTIONS: 3",
        "Produce OUT_OF_ORDER_SEQUENCE_NUMBER: 2",
        "EndTxn CONCURRENT_TRANSACTIONS: 1",
        "EndTxn error 9999: 1",
    ]
