"""profiles: the shipped ones read, and a wrong one is refused with everything that is wrong about it."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest

from relink import profiles
from relink.errors import UsageError
from relink.profiles import NO_PROFILE, Profile, profile_directory, profile_for, read_profile

SHIPPED = sorted(profile_directory().glob("packages/*.toml"))


def written(directory: Path, text: str, name: str = "mine.toml") -> Path:
    path = directory / name
    path.write_text(text)
    return path


# The shipped ones


@pytest.mark.parametrize("path", SHIPPED, ids=[path.stem for path in SHIPPED])
def test_a_shipped_profile_reads_and_says_where_it_is_from(path: Path) -> None:
    profile = read_profile(path)
    assert profile.name == path.stem
    assert profile.distributions
    assert len(profile.source) > 20
    assert profile.variants or profile.preload or profile.rpath_drop or profile.releases
    for release in profile.releases:
        assert release.distribution in profile.distributions
        assert release.source
        assert all(gpu.startswith("gfx") for gpu in release.gpus)
    for distribution in profile.distributions:
        assert profile_for(distribution) == profile


def test_no_distribution_has_two_profiles() -> None:
    counted = Counter(name for path in SHIPPED for name in read_profile(path).distributions)
    assert counted
    assert set(counted.values()) == {1}


def test_they_are_found_in_a_source_tree_and_in_an_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {"bitsandbytes", "jax-rocm7", "onnxruntime-rocm"} <= {path.stem for path in SHIPPED}
    (tmp_path / "_profiles").mkdir()
    monkeypatch.setattr("importlib.resources.files", lambda _: tmp_path)
    assert profile_directory() == tmp_path / "_profiles"


# Look-up


@pytest.mark.parametrize(
    "name", ["jax-rocm7-plugin", "jax_rocm7_plugin", "JAX.rocm7--Plugin", "Jax_Rocm7.plugin"]
)
def test_names_are_compared_as_the_index_compares_them(name: str) -> None:
    assert profile_for(name).name == "jax-rocm7"


def test_a_package_without_a_profile() -> None:
    assert profile_for("numpy") is NO_PROFILE
    assert not NO_PROFILE.is_variant("x.so")
    assert not NO_PROFILE.drops("$ORIGIN")


def test_a_damaged_shipped_profile_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "packages").mkdir()
    written(tmp_path / "packages", "this is not TOML", "bad.toml")
    monkeypatch.setattr(profiles, "profile_directory", lambda: tmp_path)
    with pytest.raises(UsageError, match=r"^bad.toml: the profile cannot be read"):
        profile_for("anything")


# Reading


def test_everything_that_a_profile_can_say(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        schema = "relink.profile/1"
        name = "mine"
        source = "here"
        distributions = ["My_Package", "other.one"]
        variants = ["my/lib*_[0-9].so"]
        preload = ["my/first.so"]
        rpath.drop = ["$ORIGIN/../rocm*"]
        [[releases]]
        distribution = "My_Package"
        version = "1.0"
        gpus = ["gfx90a"]
        source = "seen"
        """,
    )
    profile = read_profile(path)
    assert profile == Profile(
        name="mine",
        distributions=("my-package", "other-one"),
        variants=("my/lib*_[0-9].so",),
        preload=("my/first.so",),
        rpath_drop=("$ORIGIN/../rocm*",),
        releases=(profiles.Release("my-package", "1.0", ("gfx90a",), "seen"),),
        source="here",
    )
    assert profile.is_variant("my/libx_7.so")
    assert not profile.is_variant("my/libx_a.so")
    assert profile.drops("$ORIGIN/../rocm/lib")
    assert not profile.drops("$ORIGIN/../torch/lib")


def test_only_the_schema_is_needed(tmp_path: Path) -> None:
    assert read_profile(written(tmp_path, 'schema = "relink.profile/1"')) == Profile(name="mine")


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        schema = "relink.profile/9"
        name = 3
        source = ["x"]
        distributions = "one"
        variants = [1]
        preload = {}
        prelaod = []
        zzz = 1
        [rpath]
        drop = "x"
        keep = []
        [[releases]]
        version = "1"
        """,
    )
    with pytest.raises(UsageError) as caught:
        read_profile(path)
    assert caught.value.message == "mine.toml: not a profile that this relink understands"
    assert sorted(caught.value.issues) == [
        "distributions: a list of strings was expected",
        "name: a string was expected",
        "prelaod: no such key",
        "preload: a list of strings was expected",
        "releases, number 1: distribution, version, a list of gpus and source were expected",
        "rpath.drop: a list of strings was expected",
        "rpath.keep: no such key",
        'schema: "relink.profile/1" was expected',
        "source: a string was expected",
        "variants: a list of strings was expected",
        "zzz: no such key",
    ]


@pytest.mark.parametrize(
    ("text", "issue"),
    [
        ("", 'schema: "relink.profile/1" was expected'),
        ("rpath = 1", "rpath: a table was expected"),
        ("releases = 1", "releases, number 1: "),
        ('releases = [{distribution="x", version="1", gpus=[], source="s"}]', "releases, number 1: "),
        ('releases = [{distribution="x", version="1", gpus=[1], source="s"}]', "releases, number 1: "),
        (
            'releases = [{distribution="x", version="1", gpus=["g"], source="s", more=1}]',
            "releases, number 1: ",
        ),
    ],
)
def test_one_thing_that_is_wrong(tmp_path: Path, text: str, issue: str) -> None:
    schema = 'schema = "relink.profile/1"\n' if text else ""
    with pytest.raises(UsageError) as caught:
        read_profile(written(tmp_path, schema + text))
    (found,) = caught.value.issues
    assert found.startswith(issue)


@pytest.mark.parametrize("content", [b"name = ", b"\xff\xfe", None])
def test_what_is_no_toml_at_all(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"^mine.toml: the profile cannot be read \("):
        read_profile(path)


def test_the_wheel_ships_them() -> None:
    """pyproject.toml puts the directory where profile_directory looks first."""
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    build = tomllib.loads(project.read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build["force-include"]["profiles"] == "relink/_profiles"
