"""Makes ``spark.read.format("kafka_log")`` work without a register call: Spark looks for packages ``pyspark_*``."""

from kafka_eos_checks.replay.source import KafkaLogSource


class DefaultSource(KafkaLogSource):
    """The name under which Spark looks for the data source of a package."""
