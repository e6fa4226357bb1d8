"""Mutation by machine: every conjunct of every guard taken away, in the spec and in the reference."""
