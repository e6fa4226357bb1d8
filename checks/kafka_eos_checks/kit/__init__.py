"""What every room may use: verdicts, the terminal, paths, workers, recordings as files. Imports no other room."""
