"""The names that ``code`` and the plugin ``reached`` share.

The plugin imports nothing else of the project: what it imports runs before the lines are counted.
"""

NOTES, MEASURED = "KAFKA_EOS_REACHED", "KAFKA_EOS_MEASURED"
"""The variables that name the file of the plugin's notes and the package that it measures."""
ELSEWHERE = -1
"""In the notes of a line: it is executed by an import, or by a process that does not know its test."""
