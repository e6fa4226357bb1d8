from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_eos.formats import log_directory
from kafka_eos.formats.log_directory import (
    LogDirectory,
    NotALogDirectory,
    Partition,
    cluster_id,
    deeper_directories,
    deletions,
    directory_id,
    find_log_directories,
    is_set_aside,
    linked_directories,
    links_to_logs,
    misnamed,
    stands_for_logs,
    topic_id,
)


def segment_name(offset: int, suffix: str = "log") -> str:
    return f"{offset:020}.{suffix}"


def make_partition(log_directory: Path, name: str, *files: str) -> Path:
    path = log_directory / name
    path.mkdir(parents=True)
    for file in files or (segment_name(0),):
        (path / file).touch()
    return path


def only(path: Path) -> LogDirectory:
    (directory,) = find_log_directories(path)
    return directory


def names(directory: LogDirectory) -> list[tuple[str, int]]:
    return [(partition.topic, partition.partition) for partition in directory.partitions]


def test_partitions_are_found_by_name_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("orders-10", "orders-2", "my-dashed.topic_1-0", "__transaction_state-49", "a-1-2"):
        make_partition(tmp_path, name)
    assert names(only(tmp_path)) == [
        ("__transaction_state", 49),
        ("a-1", 2),
        ("my-dashed.topic_1", 0),
        ("orders", 2),
        ("orders", 10),
    ]


def test_a_folder_that_is_no_live_partition_is_listed_with_the_reason(tmp_path: Path) -> None:
    make_partition(tmp_path, "orders-0")
    unique = "0123456789abcdef0123456789abcdef"
    for name in (f"orders-1.{unique}-delete", f"orders-2.{unique}-future", f"orders-3.{unique}-stray"):
        make_partition(tmp_path, name)
    make_partition(tmp_path, "snapshots")
    make_partition(tmp_path, "orders-007")
    (tmp_path / "release-3").mkdir()
    directory = only(tmp_path)
    assert names(directory) == [("orders", 0)]
    assert {skipped.path.name: skipped.reason for skipped in directory.skipped} == {
        f"orders-1.{unique}-delete": "a partition set aside by the broker (delete)",
        f"orders-2.{unique}-future": "a partition set aside by the broker (future)",
        f"orders-3.{unique}-stray": "a partition set aside by the broker (stray)",
        "snapshots": "not named TOPIC-NUMBER",
        "orders-007": "not named TOPIC-NUMBER",
        "release-3": "no segments",
    }


def test_segments_have_their_files_and_the_order_of_their_base_offsets(tmp_path: Path) -> None:
    path = make_partition(
        tmp_path,
        "orders-0",
        segment_name(20),
        segment_name(3),
        segment_name(3, "index"),
        segment_name(3, "timeindex"),
        segment_name(3, "txnindex"),
        segment_name(20, "snapshot"),
        segment_name(31, "snapshot"),
        segment_name(99) + ".deleted",
        segment_name(98) + ".swap",
        "partition.metadata",
        "leader-epoch-checkpoint",
    )
    (partition,) = only(tmp_path).partitions
    first, second = partition.segments
    assert (first.base_offset, second.base_offset) == (3, 20)
    assert first.log == path / segment_name(3)
    assert first.offset_index == path / segment_name(3, "index")
    assert first.time_index == path / segment_name(3, "timeindex")
    assert first.transaction_index == path / segment_name(3, "txnindex")
    assert first.snapshot is None
    assert (second.offset_index, second.time_index, second.transaction_index) == (None, None, None)
    assert second.snapshot == path / segment_name(20, "snapshot")
    assert partition.snapshots == ((20, second.snapshot), (31, path / segment_name(31, "snapshot")))
    assert partition.leader_epoch_checkpoint == path / "leader-epoch-checkpoint"


def test_of_two_files_for_a_segment_the_one_with_the_first_suffix_is_taken(tmp_path: Path) -> None:
    path = make_partition(tmp_path, "orders-0", *(segment_name(0, suffix) for suffix in ("log", "log.swap")))
    for suffixes in (("log", "log.swap"), ("log.swap", "log")):
        (directory,) = find_log_directories(tmp_path, suffixes)
        assert directory.partitions[0].segments[0].log == path / segment_name(0, suffixes[0])


@pytest.mark.parametrize(
    ("text", "broker_id"),
    [
        ("#\n#Thu May 14\nnode.id=3\nversion=1\ncluster.id=abc\n", 3),
        ("version=0\nbroker.id = 0\n", 0),
        ("version=1\n", None),
        ("node.id=three\n", None),
        ("node.id=three\nbroker.id=2\n", 2),
        ("node.id=\xe9\n", None),
    ],
)
def test_the_broker_id_is_that_of_meta_properties(text: str, broker_id: int | None, tmp_path: Path) -> None:
    make_partition(tmp_path, "orders-0")
    (tmp_path / "meta.properties").write_text(text, encoding="utf-8")
    assert only(tmp_path).broker_id == broker_id


def test_the_ids_of_cluster_directory_and_topic_are_read_where_a_broker_has_written_them(tmp_path: Path) -> None:
    partition = make_partition(tmp_path, "orders-0")
    assert (cluster_id(tmp_path), directory_id(tmp_path), topic_id(partition)) == (None, None, None)
    (tmp_path / "meta.properties").write_text("node.id=1\ndirectory.id=d\ncluster.id=c\n")
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: t\n")
    assert (cluster_id(tmp_path), directory_id(tmp_path), topic_id(partition)) == ("c", "d", "t")


def test_the_folders_of_deleted_partitions_are_found(tmp_path: Path) -> None:
    names = [f"{topic}-1.{'0f' * 16}-{fate}" for topic, fate in (("b", "delete"), ("a", "delete"), ("c", "stray"))]
    for name in (*names, "orders-0"):
        make_partition(tmp_path, name)
    (tmp_path / f"link-1.{'0f' * 16}-delete").symlink_to(tmp_path / "orders-0")
    (tmp_path / f"file-1.{'0f' * 16}-delete").touch()
    assert deletions(tmp_path) == [tmp_path / names[1], tmp_path / names[0]]


def test_a_directory_of_several_brokers_has_a_log_directory_each(tmp_path: Path) -> None:
    for broker in (1, 2):
        make_partition(tmp_path / f"broker-{broker}", "orders-0")
        (tmp_path / f"broker-{broker}" / "meta.properties").write_text(f"node.id={broker}\n")
    (tmp_path / "empty").mkdir()
    found = find_log_directories(tmp_path)
    assert [(directory.path.name, directory.broker_id, names(directory)) for directory in found] == [
        ("broker-1", 1, [("orders", 0)]),
        ("broker-2", 2, [("orders", 0)]),
    ]


def test_a_broker_without_partitions_is_a_log_directory(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("node.id=1\n")
    assert only(tmp_path).partitions == ()


def test_the_directory_of_one_partition_is_accepted(tmp_path: Path) -> None:
    make_partition(tmp_path, "orders-1")
    path = make_partition(tmp_path, "orders-0")
    directory = only(path)
    assert names(directory) == [("orders", 0)]
    assert directory.path == tmp_path


def test_symbolic_links_are_listed_and_never_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    secret = make_partition(outside, "secret-0", segment_name(0), "leader-epoch-checkpoint")
    (outside / "meta.properties").write_text("node.id=9\n")
    inside = tmp_path / "inside"
    real = make_partition(inside, "orders-0")
    (inside / "secret-0").symlink_to(secret)
    (inside / "meta.properties").symlink_to(outside / "meta.properties")
    (real / segment_name(5)).symlink_to(secret / segment_name(0))
    (real / segment_name(0, "index")).symlink_to(secret / segment_name(0))
    (real / "leader-epoch-checkpoint").symlink_to(secret / "leader-epoch-checkpoint")
    directory = only(inside)
    assert names(directory) == [("orders", 0)]
    assert {skipped.reason for skipped in directory.skipped} == {"a symbolic link"}
    assert [str(skipped.path.relative_to(inside)) for skipped in directory.skipped] == [
        "meta.properties",
        f"orders-0/{segment_name(0, 'index')}",
        f"orders-0/{segment_name(5)}",
        "orders-0/leader-epoch-checkpoint",
        "secret-0",
    ]
    assert [str(link.relative_to(inside)) for link in links_to_logs([directory])] == [
        f"orders-0/{segment_name(5)}",
        "secret-0",
    ]
    assert links_to_logs([directory], ("index",)) == [real / segment_name(0, "index"), inside / "secret-0"]
    assert directory.broker_id is None
    (partition,) = directory.partitions
    assert isinstance(partition, Partition)
    assert [segment.base_offset for segment in partition.segments] == [0]
    assert partition.segments[0].offset_index is None
    assert partition.leader_epoch_checkpoint is None


def test_a_linked_log_directory_below_the_given_one_is_not_followed(tmp_path: Path) -> None:
    make_partition(tmp_path / "outside", "orders-0")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "broker-1").symlink_to(tmp_path / "outside")
    with pytest.raises(NotALogDirectory, match=r"broker-1 is a symbolic link, which is not followed"):
        find_log_directories(tmp_path / "inside")


@pytest.mark.parametrize("given", [".", "broker-1", "broker-1/orders-0"])
def test_segments_that_are_all_symbolic_links_are_named(given: str, tmp_path: Path) -> None:
    segment = make_partition(tmp_path / "copy" / "broker-1", "orders-0") / f"{0:020}.log"
    segment.rename(tmp_path / "elsewhere")
    segment.symlink_to(tmp_path / "elsewhere")
    folder = tmp_path / "copy" / given
    told = f"{segment} is a symbolic link, which is not followed; put a copy in its place"
    with pytest.raises(NotALogDirectory, match=told):
        find_log_directories(folder)


def test_a_folder_that_lost_the_name_of_its_partition_is_told_to_get_it_back(tmp_path: Path) -> None:
    make_partition(tmp_path, "orders-0").rename(tmp_path / "copied")
    with pytest.raises(NotALogDirectory, match=r"it has segments itself, so give it back the name of its partition"):
        find_log_directories(tmp_path / "copied")


def test_a_folder_with_nothing_but_partitions_that_are_set_aside_says_how_to_audit_one(tmp_path: Path) -> None:
    make_partition(tmp_path / "data", f"my.orders-1.{'0f' * 16}-stray")
    told = rf"its broker has set my\.orders-1\.{'0f' * 16}-stray aside; .*, copy it under the name my\.orders-1$"
    with pytest.raises(NotALogDirectory, match=told):
        find_log_directories(tmp_path / "data")
    topic = "o" * 213  # as much of 249 letters as there is room for
    make_partition(tmp_path / "long", f"{topic}-1.{'0f' * 16}-delete")
    with pytest.raises(NotALogDirectory, match=rf"under the name TOPIC-1; .* the topic, which begins with {topic}$"):
        find_log_directories(tmp_path / "long")


def test_an_empty_folder_is_no_log_directory(tmp_path: Path) -> None:
    (tmp_path / "notes").symlink_to(tmp_path)
    with pytest.raises(NotALogDirectory, match=r"right below it; give a broker's log.dirs or a copy of it$"):
        find_log_directories(tmp_path)


def test_folders_and_segments_with_other_names_than_a_broker_gives_are_told(tmp_path: Path) -> None:
    make_partition(tmp_path, "orders-0", segment_name(0), segment_name(5, "log.gz"), segment_name(9, "log.deleted"))
    make_partition(tmp_path, "orders 1")
    make_partition(tmp_path, "orders-2.0f-delete", segment_name(0), segment_name(5, "log.gz"))
    make_partition(tmp_path, "notes", "readme.txt")
    (tmp_path / "orders-0" / segment_name(7, "log.gz")).symlink_to(tmp_path / "notes" / "readme.txt")
    told = [Path("orders 1"), Path("orders-0") / segment_name(5, "log.gz")]
    assert misnamed(tmp_path, find_log_directories(tmp_path)) == told
    partition = tmp_path / "orders-0"
    assert misnamed(partition, find_log_directories(partition)) == [Path(segment_name(5, "log.gz"))]


@pytest.mark.parametrize(
    ("name", "stands"), [("orders-0", True), (segment_name(0), True), ("readme.txt", False), ("orders", False)]
)
def test_names_of_partitions_and_of_segments_stand_for_logs(name: str, stands: bool) -> None:
    assert stands_for_logs(name) == stands


def test_folders_with_partitions_further_below_are_named_as_they_can_be_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("broker-1/data-1", "broker-1/data-2", "broker-2/data-1"):
        make_partition(tmp_path / "copy" / folder, "orders-0")
    (tmp_path / "copy" / "broker-3").mkdir()
    monkeypatch.chdir(tmp_path)
    named = "copy/broker-1/data-1 copy/broker-1/data-2 copy/broker-2/data-1"
    with pytest.raises(NotALogDirectory, match=f"in it or in a directory right below it; give {named}$"):
        find_log_directories(Path("copy"))
    for number in range(3, 7):
        make_partition(tmp_path / "copy" / f"broker-{number}" / "data-1", "orders-0")
    with pytest.raises(NotALogDirectory, match=f"give {named} copy/broker-3/data-1 copy/broker-4/data-1 …$"):
        find_log_directories(Path("copy"))


def deeper(path: Path) -> list[Path]:
    return deeper_directories(path, find_log_directories(path))


def test_folders_that_lie_too_deep_are_told_and_no_link_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "copy"
    for folder in ("1", "1/orders-0/no", "2/data", "deep/kafka/data/3", "deep/kafka/data/3/orders-0/no"):
        make_partition(root / folder, "orders-0")
    (root / "deep" / "again").symlink_to(root / "deep")
    (root / "deep" / "kafka" / "data" / "link").symlink_to(root / "1")
    told = [Path("2/data"), Path("deep/kafka/data/3")]
    assert [directory.path.name for directory in find_log_directories(root)] == ["1"]
    assert deeper(root) == told
    assert deeper(root / "1" / "orders-0") == deeper(root / "1") == []
    monkeypatch.setattr(log_directory, "MOST_FOLDERS", 2)
    assert deeper(root) == told[:1], "a search ends"


@pytest.mark.parametrize("locked", ["deep/b", "deep/b/orders-0"])
def test_a_folder_that_cannot_be_read_ends_no_search(
    locked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("1", "deep/a", "deep/b", "deep/c"):
        make_partition(tmp_path / folder, "orders-0")
    listed = Path.iterdir

    def iterdir(path: Path) -> Iterator[Path]:
        if path == tmp_path / locked:
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert deeper(tmp_path) == [Path("deep/a"), Path("deep/c")]


def test_links_to_log_directories_are_told_with_what_they_lead_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, away = tmp_path / "copy", tmp_path / "away"
    for path in (root / "1", away / "one", away / "two" / "data-1", away / "two" / "data-2"):
        make_partition(path, "orders-0")
    (root / "hosts" / "b").mkdir(parents=True)
    for name, target in {
        "2": away / "one",
        "hosts/b/data": away,
        "hosts/disks": away / "two",
        "hosts/back": root,
        "1/orders-1": away / "one",
        "1/orders-0/data": away,
        "notes": away / "two" / "data-1" / "orders-0",
        "file": next(away.rglob("*.log")),
        "gone": away / "gone",
    }.items():
        (root / name).symlink_to(target)
    found = find_log_directories(root)
    told = {str(link.relative_to(root)): directories for link, directories in linked_directories(root, found).items()}
    assert {name: [str(each.relative_to(root)) for each in behind] for name, behind in told.items()} == {
        "2": ["2"],
        "hosts/back": ["hosts/back/1"],
        "hosts/disks": ["hosts/disks/data-1", "hosts/disks/data-2"],
        "hosts/b/data": ["hosts/b/data/one", "hosts/b/data/two/data-1", "hosts/b/data/two/data-2"],
    }
    assert linked_directories(root / "1" / "orders-0", find_log_directories(root / "1" / "orders-0")) == {}
    monkeypatch.setattr(log_directory, "MOST_FOLDERS", 1)
    assert [link.name for link in linked_directories(root, found)] == ["2"], "a search ends"


def test_the_given_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    make_partition(tmp_path / "real", "orders-0")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert names(only(tmp_path / "link")) == [("orders", 0)]


@pytest.mark.parametrize(
    ("name", "what"), [("absent", "no such file or directory"), ("file", "a file, and no directory")]
)
def test_a_path_that_is_no_directory_is_refused_with_the_remedy(name: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotALogDirectory, match=rf"{name}: {what}; give a broker's log\.dirs"):
        find_log_directories(tmp_path / name)


def test_a_directory_is_looked_at_as_a_whole_unless_one_of_its_partitions_is_given(tmp_path: Path) -> None:
    partition = make_partition(tmp_path / "data", "orders-0")
    assert [only(each).is_whole for each in (tmp_path, tmp_path / "data", partition)] == [True, True, False]


def test_a_folder_that_is_set_aside_has_the_name_of_its_partition() -> None:
    unique = "0f" * 16
    for fate in ("delete", "future", "stray"):
        assert is_set_aside(f"orders-1.{unique}-{fate}", "orders", 1)
    for name in ("orders-1", f"orders-2.{unique}-delete", f"order-1.{unique}-delete", f"orders-1.{unique}-other"):
        assert not is_set_aside(name, "orders", 1)
    topic = "o" * 249
    shortened = f"{topic[:213]}-1.{unique}-delete"
    assert len(shortened) == 255
    assert is_set_aside(shortened, topic, 1)
    assert not is_set_aside(shortened[1:], topic, 1)
