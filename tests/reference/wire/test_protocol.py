import random
from typing import Any
from uuid import UUID

import pytest

from kafka_eos.wire.protocol import Buffer, Codec, MalformedMessage, Message, _put_varint, load_codec
from kafka_eos_checks.brokers.jars import clients_jar, have_jars

END_TXN = bytes.fromhex(
    "001a 0003 00000007 0003 616263 00"  # EndTxn v3, correlation 7, client "abc", no tags
    "03 7431 0000000000000fa0 0005 01 00"  # "t1", producer id 4000, epoch 5, commit, no tags
)


def test_a_request_is_read_as_its_bytes_say(codec: Codec) -> None:
    header, body = codec.read_request_header(END_TXN)
    assert header == {"RequestApiKey": 26, "RequestApiVersion": 3, "CorrelationId": 7, "ClientId": "abc"}
    row = codec.read("EndTxnRequest", 3, body)
    assert row == {"TransactionalId": "t1", "ProducerId": 4000, "ProducerEpoch": 5, "Committed": True}
    assert body.remaining == 0


def test_a_request_is_written_as_it_was_read(codec: Codec) -> None:
    row = {"TransactionalId": "t1", "ProducerId": 4000, "ProducerEpoch": 5, "Committed": True}
    assert codec.write_request("EndTxn", 3, 7, "abc", row) == END_TXN


def test_a_field_of_a_later_version_is_neither_written_nor_read(codec: Codec) -> None:
    row = {"ThrottleTimeMs": 0, "ErrorCode": 51, "ProducerId": 9, "ProducerEpoch": 2}
    assert codec.read_response("EndTxn", 5, codec.write_response("EndTxn", 5, 1, row)) == (1, row)
    before = codec.read_response("EndTxn", 4, codec.write_response("EndTxn", 4, 1, row))
    assert before == (1, {"ThrottleTimeMs": 0, "ErrorCode": 51})


def test_tagged_fields_have_a_default_and_unknown_ones_survive(codec: Codec) -> None:
    part = {"Index": 0, "ErrorCode": 6, "BaseOffset": -1}
    leader = {"LeaderId": 2, "LeaderEpoch": 5}
    for given, expected in ((part, {"LeaderId": -1, "LeaderEpoch": -1}), (part | {"CurrentLeader": leader}, leader)):
        row = {"Responses": [{"Name": "t", "PartitionResponses": [given]}], "_tagged": {9: b"new"}}
        _, read = codec.read_response("Produce", 10, codec.write_response("Produce", 10, 1, row))
        assert read["Responses"][0]["PartitionResponses"][0]["CurrentLeader"] == expected
        assert read["_tagged"] == {9: b"new"}


def test_old_and_flexible_versions_of_one_message_say_the_same(codec: Codec) -> None:
    row = {
        "TransactionalId": None,
        "Acks": -1,
        "TimeoutMs": 5,
        "TopicData": [{"Name": "é" * 200, "PartitionData": [{"Index": 3, "Records": None}]}],
    }
    for version in (8, 9):
        assert codec.read("ProduceRequest", version, Buffer(codec.write("ProduceRequest", version, row))) == row


def test_an_answer_to_api_versions_has_the_oldest_header(codec: Codec) -> None:
    assert codec.write_response("ApiVersions", 3, 1, {"ErrorCode": 35}) == bytes.fromhex("00000001 0023 00")
    assert codec.write_response("EndTxn", 3, 1, {}) == bytes.fromhex("00000001 00 00000000 0000 00")


def test_a_request_of_an_old_version_has_a_header_with_the_client_and_without_tags(codec: Codec) -> None:
    data = bytes.fromhex("0012 0000 00000007 0003 616263")
    assert codec.write_request("ApiVersions", 0, 7, "abc", {}) == data
    header, body = codec.read_request_header(data)
    assert header == {"RequestApiKey": 18, "RequestApiVersion": 0, "CorrelationId": 7, "ClientId": "abc"}
    assert body.remaining == 0


@pytest.mark.parametrize("length", range(len(END_TXN)))
def test_a_request_that_is_cut_off_anywhere_is_refused(codec: Codec, length: int) -> None:
    with pytest.raises(MalformedMessage):
        codec.read("EndTxnRequest", 3, codec.read_request_header(END_TXN[:length])[1])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("7fffffff", "2147483647 elements announced, 0 bytes left$"),  # an array of 2^31 - 1 elements
        ("fffffffe 0000", "-2 elements announced, 2 bytes left$"),
        ("ffffffff", "-1 elements announced"),  # none, which this one may not be
        ("00000001 7fff", "32767 bytes announced"),  # a string longer than the message
        ("00000001 0001 ff", "no UTF-8: invalid start byte$"),
    ],
)
def test_impossible_lengths_are_refused_before_anything_is_allocated(codec: Codec, body: str, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        codec.read("ProduceRequest", 8, Buffer(bytes.fromhex("ffff ffff 00000001" + body)))


STRUCTURES = Codec({
    "Room": {
        "type": "data", "validVersions": "0-12", "flexibleVersions": "10+",
        "fields": [
            {"name": "Name", "type": "string", "versions": "0+"},
            {"name": "Keys", "type": "[]Key", "versions": "9-10", "nullableVersions": "9+"},
            {
                "name": "Owner", "type": "Owner", "versions": "10+", "nullableVersions": "10+",
                "default": "null", "fields": [{"name": "Age", "type": "int8", "versions": "10+"}],
            },
            {
                "name": "Guest", "type": "Guest", "versions": "12+", "nullableVersions": "12+", "taggedVersions": "12+",
                "tag": 0, "default": "null", "fields": [{"name": "Age", "type": "int8", "versions": "12+"}],
            },
        ],
        "commonStructs": [{"name": "Key", "fields": [{"name": "Teeth", "type": "int8", "versions": "9+"}]}],
    }
})  # fmt: skip


@pytest.mark.parametrize(
    ("version", "row", "written"),
    [
        (8, {"Name": "ab"}, "0002 6162"),
        (9, {"Name": "ab", "Keys": None}, "0002 6162 ffffffff"),
        (9, {"Name": "ab", "Keys": [{"Teeth": 5}]}, "0002 6162 00000001 05"),
        (10, {"Name": "ab", "Keys": None, "Owner": None}, "03 6162 00 ff 00"),
        (10, {"Name": "ab", "Keys": [{"Teeth": 5}], "Owner": {"Age": 7}}, "03 6162 02 05 00 01 07 00 00"),
        (11, {"Name": "ab", "Owner": {"Age": 7}}, "03 6162 01 07 00 00"),
        (12, {"Name": "ab", "Owner": None, "Guest": None}, "03 6162 ff 00"),
        (12, {"Name": "ab", "Owner": None, "Guest": {"Age": 7}}, "03 6162 ff 01 00 03 01 07 00"),
    ],
)
def test_a_message_has_the_fields_of_its_version_and_says_what_is_missing(version: int, row: Any, written: str) -> None:
    data = bytes.fromhex(written)
    assert STRUCTURES.write("Room", version, row) == data
    assert STRUCTURES.read("Room", version, Buffer(data)) == row


def test_in_a_tagged_field_zero_stands_for_no_structure_as_in_kafkas_records_of_group_members() -> None:
    row = STRUCTURES.read("Room", 12, Buffer(bytes.fromhex("03 6162 ff 01 00 01 00")))
    assert row == {"Name": "ab", "Owner": None, "Guest": None}


TYPES = Codec({
    "Types": {
        "type": "data", "validVersions": "0-1", "flexibleVersions": "1+",
        "fields": [
            {"name": "Text", "type": "string", "versions": "0+", "nullableVersions": "0+", "default": "a"},
            {"name": "Bytes", "type": "bytes", "versions": "0+", "nullableVersions": "0+"},
            {"name": "Records", "type": "records", "versions": "0+"},
            {"name": "Id", "type": "uuid", "versions": "0+"},
            {"name": "Share", "type": "float64", "versions": "0+"},
            {"name": "Rate", "type": "float64", "versions": "0+", "default": "1.5"},
            {"name": "Mask", "type": "uint32", "versions": "0+", "default": "0x80000000"},
            {"name": "Count", "type": "int64", "versions": "0+", "default": "-1"},
            {"name": "Port", "type": "uint16", "versions": "0+"},
        ],
    }
})  # fmt: skip
NUMBERS = "0000000000000000 3ff8000000000000 80000000 ffffffffffffffff 0000"
UUID_5 = f"{5:032x}"


@pytest.mark.parametrize(
    ("version", "row", "written"),
    [
        (0, {}, f"0001 61 00000000 00000000 {0:032x} {NUMBERS}"),
        (0, {"Text": None, "Bytes": None, "Id": UUID(int=5)}, f"ffff ffffffff 00000000 {UUID_5} {NUMBERS}"),
        (0, {"Bytes": b"b", "Records": b"cd"}, f"0001 61 00000001 62 00000002 6364 {0:032x} {NUMBERS}"),
        (1, {}, f"02 61 01 01 {0:032x} {NUMBERS} 00"),
        (1, {"Text": None, "Bytes": None, "Id": UUID(int=5)}, f"00 00 01 {UUID_5} {NUMBERS} 00"),
        (1, {"Bytes": b"b", "Records": b"cd"}, f"02 61 02 62 03 6364 {0:032x} {NUMBERS} 00"),
    ],
)
def test_each_type_has_its_form_and_its_default(version: int, row: Message, written: str) -> None:
    data = bytes.fromhex(written)
    assert TYPES.write("Types", version, row) == data
    usual = {"Text": "a", "Bytes": b"", "Records": b"", "Id": UUID(int=0), "Share": 0.0, "Rate": 1.5}
    read = TYPES.read("Types", version, Buffer(data))
    assert read == {**usual, "Mask": 2**31, "Count": -1, "Port": 0, **row}


def test_only_minus_one_stands_for_no_string() -> None:
    with pytest.raises(MalformedMessage, match="-2 bytes announced"):
        TYPES.read("Types", 0, Buffer(bytes.fromhex("fffe") + bytes(60)))


def test_only_minus_one_stands_for_no_array() -> None:
    with pytest.raises(MalformedMessage, match="-2 elements announced"):
        STRUCTURES.read("Room", 9, Buffer(bytes.fromhex("0002 6162 fffffffe")))


def test_a_message_has_as_many_elements_as_its_reader_takes_and_no_more() -> None:
    many = {"Name": "ab", "Keys": [{"Teeth": 5}] * 1000}
    assert STRUCTURES.read("Room", 9, Buffer(STRUCTURES.write("Room", 9, many))) == many
    assert STRUCTURES._type("Room", 9) is STRUCTURES._type("Room", 9), "a version is compiled once"
    data = bytes.fromhex("0002 6162 00000002 05 06")
    assert len(STRUCTURES.read("Room", 9, Buffer(data, 2))["Keys"]) == 2
    with pytest.raises(MalformedMessage, match="2 elements more than there may be"):
        STRUCTURES.read("Room", 9, Buffer(data, 1))


LISTS = Codec({
    "Lists": {
        "type": "data", "validVersions": "0", "flexibleVersions": "0+",
        "fields": [
            {"name": name, "type": "[]int8", "versions": "0+", "taggedVersions": "0+", "tag": tag}
            for tag, name in enumerate(("First", "Second"))
        ],
    }
})  # fmt: skip


def test_the_elements_of_all_tagged_fields_are_counted_together() -> None:
    row = {"First": [5, 6], "Second": [7]}
    data = LISTS.write("Lists", 0, row)
    assert LISTS.read("Lists", 0, Buffer(data, 3)) == row
    with pytest.raises(MalformedMessage, match="2 elements more than there may be"):
        LISTS.read("Lists", 0, Buffer(data, 1))
    with pytest.raises(MalformedMessage, match="1 elements more than there may be"):
        LISTS.read("Lists", 0, Buffer(data, 2))


@pytest.mark.parametrize(("message", "version"), [("Room", 13), ("Hall", 0)])
def test_an_unknown_message_is_neither_written_nor_read(message: str, version: int) -> None:
    with pytest.raises(MalformedMessage, match=f"^at byte 0: {message} has no version {version}"):
        STRUCTURES.write(message, version, {})
    with pytest.raises(MalformedMessage, match=f"{message} has no version {version}$"):
        STRUCTURES.read(message, version, Buffer(b""))


@pytest.mark.parametrize(
    ("default", "written"), [({}, "00"), ({"default": "false"}, "00"), ({"default": "true"}, "01")]
)
def test_a_flag_is_false_unless_its_schema_says_otherwise(default: Message, written: str) -> None:
    flag = {"name": "Flag", "type": "bool", "versions": "0+", **default}
    codec = Codec({"Flags": {"type": "data", "validVersions": "0", "flexibleVersions": "none", "fields": [flag]}})
    assert codec.write("Flags", 0, {}).hex() == written


def test_the_fields_of_a_version_contain_those_of_their_structures() -> None:
    found = {each["name"]: [own["name"] for own in each["fields"]] for each in STRUCTURES.fields("Room", 10)}
    assert found == {"Name": [], "Keys": ["Teeth"], "Owner": ["Age"]}
    assert [each["name"] for each in STRUCTURES.fields("Room", 9)] == ["Name", "Keys"]


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (16_384, "808001"), (2**32 - 1, "ffffffff0f")],
)
def test_a_varint_has_seven_bits_a_byte_the_lowest_first(value: int, written: str) -> None:
    out = bytearray()
    _put_varint(out, value)
    assert out.hex() == written
    assert Buffer(bytes(out)).varint() == value


def test_a_varint_of_too_many_bytes_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="more than five bytes"):
        Buffer(b"\xff" * 10).varint()


def test_unknown_apis_and_versions_are_refused(codec: Codec) -> None:
    for key_and_version in ("03e7 0000", "001a 0006", "001a 0002"):
        with pytest.raises(MalformedMessage, match="at byte 0: no API"):
            codec.read_request_header(bytes.fromhex(key_and_version + "00000001 ffff"))


def test_random_bytes_are_read_or_refused_and_nothing_else(codec: Codec) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    refused = 0
    for _ in range(2_000):
        mutated = bytearray(END_TXN)
        for _ in range(dice.randint(1, 4)):
            mutated[dice.randrange(len(mutated))] = dice.randrange(256)
        try:
            header, body = codec.read_request_header(bytes(mutated))
            codec.read(f"{codec.names[header['RequestApiKey']]}Request", header["RequestApiVersion"], body)
        except MalformedMessage:
            refused += 1
    assert refused > 100


@pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos lab record` fetches them")
def test_every_version_of_every_message_of_kafka_survives_a_round_trip() -> None:
    codec = load_codec(clients_jar())
    pairs = [(name, version) for name in codec.messages() for version in codec.versions(name)]
    for name, version in pairs:
        written = codec.write(name, version, {})
        buffer = Buffer(written)
        assert codec.write(name, version, codec.read(name, version, buffer)) == written, (name, version)
        assert buffer.remaining == 0, (name, version)
    assert len(pairs) == 625
    assert codec.read("MetadataRequest", 13, Buffer(codec.write("MetadataRequest", 13, {"Topics": None})))
    answer = {"Topics": [{"Name": "t", "TopicId": UUID(int=5)}]}
    assert codec.read("MetadataResponse", 13, Buffer(codec.write("MetadataResponse", 13, answer)))["Topics"][0][
        "TopicId"
    ] == UUID(int=5)
