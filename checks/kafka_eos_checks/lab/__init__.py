"""Data made and measured: recordings of real brokers, generated logs, damaged input, costs, benchmarks."""
