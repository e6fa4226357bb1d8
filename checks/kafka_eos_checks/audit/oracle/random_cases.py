"""Random cases, each judged twice: by a plan of the audit and by the readable rules. Any difference is a failure."""

import time
from collections import Counter
from collections.abc import Callable

from kafka_eos_checks.kit.progress import count_progress
from kafka_eos_checks.kit.verdict import Verdict

SHOWN = 20


def compare(
    name: str,
    noun: str,
    nouns: str,
    difference: Callable[[int], tuple[str, Counter[str]]],
    count: int,
    first: int,
) -> Verdict:
    """Judge the cases with the seeds from ``first`` on.

    Args:
        name: the name of the verdict.
        noun: the word for a case, such as ``cluster``.
        nouns: its plural.
        difference: for a seed, returns how the two judgements differ ("" if they do not) and figures to sum.
        count: number of cases.
        first: seed of the first case.
    """
    started = time.perf_counter()
    differing: list[str] = []
    figures: Counter[str] = Counter()
    with count_progress(f"random {nouns}", count) as advance:
        for seed in range(first, first + count):
            differs, own = difference(seed)
            differing += [f"seed {seed}: {differs}"] if differs else []
            figures.update(own)
            advance(1)
    expected = f"0 {nouns} differ"
    found = f"{len(differing)} {nouns} differ" if count else f"no {noun}"
    return Verdict(
        check="fuzz",
        name=name,
        expected=expected,
        found=found,
        ok=found == expected,
        seconds=time.perf_counter() - started,
        figures={"seed": str(first), nouns: count, **dict(sorted(figures.items()))},
        evidence="\n".join(differing[:SHOWN]),
    )
