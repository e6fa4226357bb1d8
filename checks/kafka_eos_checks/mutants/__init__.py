"""The machines' rules with one thing changed, as ``spec/mutants`` has them. Nothing else is here."""
