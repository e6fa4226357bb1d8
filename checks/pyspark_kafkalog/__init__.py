"""Makes ``spark.read.format("kafka_log")`` work without a register call: Spark looks for packages ``pyspark_*``."""
