"""The partition that a coordinator keeps a key in."""

from kafka_eos.formats.coordinator_partition import coordinator_partition


def test_a_key_belongs_to_the_partition_that_java_gives_it() -> None:
    """The hash is that of Java's strings, made positive; the values are those that Kafka's own jar computes.

    Kafka: Utils.abs
    """
    texts = ("", "a", "hello", "polygenelubricants", "😀", "my-group", "hello-world")
    assert [coordinator_partition(text, 1 << 31) for text in texts] == [
        0,
        97,
        99162322,
        0,  # Integer.MIN_VALUE
        1772899,
        1906497762,  # of -1906497762
        2128682281,  # of -2128682281
    ]
    assert [coordinator_partition("hello", partitions) for partitions in (1, 50)] == [0, 99162322 % 50]
