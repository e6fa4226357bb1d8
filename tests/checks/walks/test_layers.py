"""The larger constants of layers."""

from kafka_eos_checks.walks import campaign


def test_a_layer_of_transactions_has_room_for_faults_if_its_model_names_some() -> None:
    layers = [layer.model for layer in campaign.all_layers() if layer.model.module == "Transactions"]
    assert {model.constants["Faults"] == "{}" for model in layers} == {False, True}
    for model in layers:
        most = int(model.constants["MaxFaults"])
        assert most == 0 if model.constants["Faults"] == "{}" else most > 1, model.name
