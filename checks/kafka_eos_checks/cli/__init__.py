"""The command ``kafka-eos``: its doors, and the main job of ``make``.

On top of everything: any room may enter, and no room imports it. Read ``doors`` first.
"""

from kafka_eos_checks.cli.command import main as main
