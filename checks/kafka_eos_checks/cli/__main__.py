"""``python -m kafka_eos_checks.cli``."""

import sys

from kafka_eos_checks.cli import main

sys.exit(main())
