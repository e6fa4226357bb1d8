"""Tools that make and measure data: recordings of real brokers, generated logs, damaged input, costs, benchmarks."""
