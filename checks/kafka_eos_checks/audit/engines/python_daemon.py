"""The process that a local session's workers are forked from: pyspark's own, with pyspark as it is installed.

Spark puts pyspark.zip first on the path of its workers. It has no compiled modules, so the daemon and each worker would
compile those that they import: half a second until the first task begins, measured.
"""

import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith(("pyspark.zip", "-src.zip"))]

from pyspark.daemon import manager  # noqa: E402 - the path is set first

if __name__ == "__main__":
    manager()
