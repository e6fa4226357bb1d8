"""Simulation at volume: walks over the reference's machines under swarms of faults, judged by the spec's own text."""
