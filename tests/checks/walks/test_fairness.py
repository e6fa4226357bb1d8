"""The weakly fair actions of a specification, by each WF of its text."""

from kafka_eos_checks.walks import campaign


def test_each_weakly_fair_action_is_a_group_for_each_binding() -> None:
    layer = next(layer for layer in campaign.all_layers() if layer.name == "Transfer")
    groups = campaign.walker_of(layer).fairness.groups("FairSpec")
    found = {name: [set(group) for group in own] for name, own in groups.items()}
    instances = ("A", "B", "C")
    steps = ("Fetch", "Debit", "Credit", "SendOffset", "Commit")
    assert found == {
        "WF(WriteMarker)": [{("WriteMarker", (partition,))} for partition in ("p0", "p1", "p7")],
        f"WF({' or '.join(steps)})": [{(step, (each,)) for step in steps} for each in instances],
        "WF(LearnFencing)": [{("LearnFencing", (each,))} for each in instances],
        "WF(Initialize)": [{("Initialize", (each,))} for each in instances],
    }
