"""The data source ``kafka_log`` for Spark, which looks for packages ``pyspark_*`` and finds ``DefaultSource`` here."""

from kafka_eos_checks.audit.source import KafkaLogSource, register

__all__ = ["DefaultSource", "register"]


class DefaultSource(KafkaLogSource):
    """The name under which Spark looks for the data source of a package."""
