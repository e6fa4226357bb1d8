"""Graph equality: edges and refusals compared per second; the time of TLC's export is given separately."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kafka_eos_checks.graphs.command import compare
from kafka_eos_checks.graphs.state_graph import GraphUnusable, export
from kafka_eos_checks.kit.terminal import progress_console
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.lab.bench.measure import Answer, Side, Work, measure, own_verdict
from kafka_eos_checks.models.registry import Registry

MODEL, QUICK_MODEL = "IdempotentProducer", "PartitionLog"


def run(folder: Path, *, quick: bool) -> Iterator[Verdict]:  # noqa: ARG001 - every part takes a folder
    """Export one model's graph with TLC, then compare the reference with it several times."""
    model = Registry().models[QUICK_MODEL if quick else MODEL]
    try:
        with progress_console.status(f"TLC exports the graph of {model.name}"):
            graph = export(model, model.machine_class())
    except (GraphUnusable, OSError) as error:
        name = f"graph: {model.name}"
        yield Verdict(check="bench", name=name, expected="equal graphs", found=f"skipped: {error}", ok=True)
        return

    def compared() -> Answer:
        found = compare(model, graph=graph)
        return {
            "states": found.states,
            "edges": found.edges,
            "refusals": found.refusals,
            "differences": found.difference_count,
        }

    ours = Side(name="the reference compared with TLC's graph", run=compared)
    measured = measure([ours], 3, label="graph", warm_up=False)
    counts = measured.answers[ours.name]
    checks = counts["edges"] + counts["refusals"]
    differs = counts["differences"]
    given = f"{counts['states']:,} states, {counts['edges']:,} edges, {counts['refusals']:,} refusals"
    for amount, unit in ((checks, "checks/s"), (counts["edges"], "edges/s")):
        work = Work(part="graph", name=model.name, given=given, amount=amount, unit=unit)
        verdict = own_verdict(work, ours, measured)
        yield replace(
            verdict,
            name=f"{verdict.name}, {unit}",
            expected="equal graphs",
            found=f"{differs:,} differences" if differs else "equal graphs",
            ok=verdict.ok and not differs,
            figures={**verdict.figures, "tlc_export_seconds": round(graph.seconds, 2)},
            evidence=f"{verdict.evidence}\nTLC took {graph.seconds:.1f} s to export the graph",
        )
