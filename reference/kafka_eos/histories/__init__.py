"""The schema of recorded events, the simulator, and what simulated runs write.

Machines and formats may enter. Read ``history`` first.
"""
