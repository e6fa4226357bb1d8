"""The process that a local session's workers are forked from: pyspark's own, with pyspark as it is installed.

Spark puts pyspark.zip first on the path of its workers. It has no compiled modules, so the daemon and each worker would
compile those that they import: half a second until the first task begins, measured. The zips are last here, because a
Spark that pip has not installed may have py4j only in one.
"""

import sys

sys.path.sort(key=lambda entry: entry.endswith(("pyspark.zip", "-src.zip")))

from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
