from pathlib import Path
from zipfile import ZipFile

import pytest

from kafka_eos_checks.kit import paths
from kafka_eos_checks.kit.missing import MissingClone, need_clone


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed package, next to another package's folder ``spec``."""
    package = tmp_path / "lib" / "site-packages" / "kafka_eos_checks"
    package.mkdir(parents=True)
    (tmp_path / "lib" / "spec").mkdir()
    monkeypatch.setattr(paths, "_PACKAGE", package)
    monkeypatch.setattr(paths, "CLONE", package.parent.parent)
    monkeypatch.chdir(tmp_path)
    return package


def test_a_clone_has_its_own_files_and_writes_to_its_own_build_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.is_clone()
    assert (paths.spec_folder() / "models").is_dir()
    assert (paths.recordings_folder() / "expected.toml").is_file()
    assert paths.pom_file().is_file()
    assert paths.build_folder() == paths.CLONE / "build"
    need_clone("nothing")


def test_what_a_user_asks_for_is_written_below_the_current_folder_or_in_the_clone_if_called_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.output_folder() == tmp_path / "build"
    monkeypatch.chdir(paths.CLONE / "checks")
    assert paths.output_folder() == paths.CLONE / "build"


def test_an_installed_package_has_the_files_it_carries_and_writes_to_the_current_folder(installed: Path) -> None:
    assert not paths.is_clone()
    assert paths.spec_folder() == installed / "spec"
    assert paths.recordings_folder() == installed / "recordings"
    assert paths.pom_file() == installed / "pom.xml"
    assert paths.build_folder() == paths.output_folder() == Path.cwd() / "build"


@pytest.mark.usefixtures("installed")
def test_what_only_saves_time_is_in_the_users_cache_and_in_build_for_a_user_without_a_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nobody(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/a")
    assert paths.user_cache_folder() == Path("/home/a/.cache/kafka-eos")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert paths.user_cache_folder() == Path("/cache/kafka-eos")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert paths.user_cache_folder() == paths.build_folder()


def test_a_package_in_a_zip_is_unpacked_once_and_its_files_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package_before = paths.package_folder()
    with ZipFile(tmp_path / "program.zip", "w") as archive:
        archive.writestr("kafka_eos_checks/spec/Log.tla", "MODULE Log")
    monkeypatch.setattr(paths, "_PACKAGE", tmp_path / "program.zip" / "kafka_eos_checks")
    unpacked = paths.package_folder()
    assert unpacked != package_before
    assert (unpacked / "spec" / "Log.tla").read_text() == "MODULE Log"
    assert paths.package_folder() == unpacked


@pytest.mark.usefixtures("installed")
def test_a_file_that_only_a_clone_has_is_named_with_the_way_to_get_one() -> None:
    with pytest.raises(MissingClone, match="needs the tests, which only a clone of the repository has; clone it"):
        need_clone("the tests")
