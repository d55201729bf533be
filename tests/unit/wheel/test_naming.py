""""""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.tags import Tag
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from relink.system.errors import UsageError, WheelError
from relink.vendors.rocm.facts import VERSION_LABEL
from relink.wheel.naming import explain_not_a_wheel, parse_wheel_name, relinked_name, rename_directory
from tests.support.command import Run
from tests.support.works import Works


def test_a_wheel_that_is_not_there(run: Run) -> None:
    code, _, err = run("demo-1.0-py3-none-any.whl")
    assert code == 2
    assert "demo-1.0-py3-none-any.whl cannot be opened (No such file or directory)" in err


# Files that are no wheels


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("demo-1.0.tar.gz", "is a source distribution, and relink takes wheels"),
        ("demo-1.0.zip", "is a source distribution, and relink takes wheels"),
        ("demo-1.0-0.conda", "is a package of conda's"),
        ("demo_1.0_amd64.deb", "is a package of Debian's"),
    ],
)
def test_a_file_of_another_kind(run: Run, tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / name).write_bytes(b"\x1f\x8b")
    for command in ([], ["inspect"], ["verify"]):
        code, out, err = run(*command, tmp_path / name)
        assert (code, out) == (2, "")
        assert sentence in err
        assert err.count("\n") == 1


def test_a_directory(run: Run, works: Works, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    assert "there is no wheel in it" in run(tmp_path / "d")[2]
    (tmp_path / "d" / "pyproject.toml").touch()
    assert f"build one: pip wheel --no-deps {tmp_path}/d" in run(tmp_path / "d")[2]
    wheel = works.small(tmp_path / "d")
    code, _, err = run(tmp_path / "d")
    assert code == 2
    assert f"pass those in it: {wheel}" in err


def test_what_may_be_a_wheel_is_opened(tmp_path: Path) -> None:
    (tmp_path / "store-name").touch()
    assert explain_not_a_wheel(tmp_path / "store-name") is None


THERE = "demo-1.0+rocm7.2.4-cp311-cp311-linux_x86_64.whl"


@pytest.mark.parametrize(
    ("word", "sentence", "why", "step"),
    [
        ("demo>=1.22", "fetch the package", "it needs the network", "relink fetch 'demo>=1.22'"),
        ("demo[gpu]==1.0", "fetch the package", "it needs the network", "relink fetch 'demo[gpu]==1.0'"),
        (
            "https://example.com/a/demo-1.0-py3-none-any.whl",
            "is an address, and relink takes files",
            "it needs the network",
            "pip download --no-deps https://example.com/a/demo-1.0-py3-none-any.whl",
        ),
        (
            "demo-1.1+rocm7.2.4-cp311-cp311-linux_x86_64.whl",
            f"did you mean {THERE}?",
            "this run ended before it",
            f"relink {{}} {THERE}",
        ),
        ("nothing-1.0.tar.gz", "cannot be opened (No such file or directory)", "", ""),
    ],
)
def test_what_is_not_there(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, sentence: str, why: str, step: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / THERE).touch()
    for command in ("inspect", "explain", "verify"):
        code, out, err = run(command, word)
        assert (code, out) == (2, "")
        first, *following = err.splitlines()
        assert sentence in first
        assert following == ([f"Next (not tried: {why}):", f"    {step.format(command)}"] if step else [])


VENDOR = "onnxruntime_rocm-1.22.2.post3-cp312-cp312-manylinux_2_34_x86_64.whl"


def test_parts_keep_their_spelling() -> None:
    name = parse_wheel_name("Foo.Bar-1.0.0_rc1-2b-py2.py3-none-manylinux1_x86_64.linux_x86_64.whl")
    assert (name.distribution, name.version_text, name.build) == ("Foo.Bar", "1.0.0_rc1", "2b")
    assert name.version == Version("1.0.0rc1")
    assert name.canonical == "foo-bar"
    assert name.filename == "Foo.Bar-1.0.0_rc1-2b-py2.py3-none-manylinux1_x86_64.linux_x86_64.whl"
    assert name.expanded_tags == (
        "py2-none-manylinux1_x86_64",
        "py2-none-linux_x86_64",
        "py3-none-manylinux1_x86_64",
        "py3-none-linux_x86_64",
    )
    assert Tag("py3", "none", "linux_x86_64") in name.tags
    assert name.tags == parse_wheel_filename(name.filename)[3]


@pytest.mark.parametrize(
    "filename",
    [
        "x.whl",
        "x-1.0-py3-none-any.zip",
        "x-one-py3-none-any.whl",
        "x-1.0-b-py3-none-any.whl",
        "x__y-1.0-py3-none-any.whl",
        "x-1.0-py3-none-../../any.whl",
        "x-1.0-py3-none-a\nny.whl",
        f"x-{'9' * 5000}-py3-none-any.whl",
        f"x-1.0-{'9' * 5000}-py3-none-any.whl",
        "x-1.0-py2..py3-none-any.whl",
    ],
)
def test_not_a_wheel_name(filename: str) -> None:
    with pytest.raises(WheelError, match="not the name of a wheel"):
        parse_wheel_name(filename)


def test_tag_product() -> None:
    """Three sets of tags stand for their product, which neither relink nor `packaging` may expand."""
    tags = ".".join(f"p{number}" for number in range(40))
    with pytest.raises(WheelError, match=r"64000 tags; at most 1024 and 100 are read"):
        parse_wheel_name(f"x-1.0-{tags}-{tags}-{tags}.whl")
    with pytest.raises(WheelError, match="2015 characters, 1 tags"):
        parse_wheel_name(f"{'x' * 1996}-1-py3-none-any.whl")
    assert len(parse_wheel_name(f"x-1.0-{tags[:29]}-a.b-c.d.e.f.g.whl").tags) == 100


def test_tag_product_is_not_made_to_read_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr("packaging.tags.Tag.__init__", lambda _, *tag: made.append(tag))
    monkeypatch.setattr("packaging.tags.Tag.__hash__", lambda _: 0)
    parse_wheel_name("x-1.0-a.b.c.d.e-f.g.h-i.j.whl")
    assert len(made) <= 1


@pytest.mark.parametrize(
    ("version", "local", "expected"),
    [
        ("1.22.2.post3", "rocm7.2.4", "1.22.2.post3+rocm7.2.4"),
        ("2.9.1+rocm7.2.0", "rocm7.2.4", "2.9.1+rocm7.2.4"),
        ("2.9.1+rocm7.11.0a20260101", "rocm7.2.4", "2.9.1+rocm7.2.4"),
        ("2.9.1+cu12", "rocm7.2.4", "2.9.1+cu12.rocm7.2.4"),
        ("2.9.1+cu12.rocm6", "rocm7.2.4", "2.9.1+cu12.rocm7.2.4"),
        ("2.9.1+rocm7.2.0.lw.git7e1940d4", "rocm7.2.4", "2.9.1+rocm7.2.0.lw.git7e1940d4.rocm7.2.4"),
        ("2.9.1+myrocm7", "rocm7.2.4", "2.9.1+myrocm7.rocm7.2.4"),
        ("2.9.1+rocm7.2", "site.1", "2.9.1+rocm7.2.site.1"),
        ("1!1.0.dev3", "ROCm7.2-4", "1!1.0.dev3+rocm7.2.4"),
    ],
)
def test_local_version(version: str, local: str, expected: str) -> None:
    name = parse_wheel_name(f"x-{version}-py3-none-any.whl")
    once = relinked_name(name, local=local, platform="linux_x86_64", replaces=VERSION_LABEL)
    assert once.version_text == expected
    assert once.version == Version(expected)
    assert relinked_name(once, local=local, platform="linux_x86_64", replaces=VERSION_LABEL) == once
    assert parse_wheel_name(once.filename) == once


def test_a_label_is_kept_where_nothing_says_that_it_is_replaced() -> None:
    name = parse_wheel_name("x-2.9.1+rocm7.2.0-py3-none-any.whl")
    assert relinked_name(name, local="rocm7.2.4", platform="any").version_text == "2.9.1+rocm7.2.0.rocm7.2.4"


def test_only_the_platform_changes() -> None:
    new = relinked_name(parse_wheel_name(VENDOR), local="rocm7.2.4", platform="linux_x86_64")
    assert new.filename == "onnxruntime_rocm-1.22.2.post3+rocm7.2.4-cp312-cp312-linux_x86_64.whl"
    kept = relinked_name(
        parse_wheel_name("x-1.0_rc1-3-py3-none-any.whl"), local=None, platform="linux_x86_64"
    )
    assert kept.filename == "x-1.0_rc1-3-py3-none-linux_x86_64.whl"


def test_bad_label_and_platform() -> None:
    name = parse_wheel_name(VENDOR)
    with pytest.raises(UsageError, match="local version label"):
        relinked_name(name, local="rocm 7", platform="linux_x86_64")
    with pytest.raises(UsageError, match="platform tag"):
        relinked_name(name, local=None, platform="linux-x86_64")


def test_renamed_directory() -> None:
    new = relinked_name(parse_wheel_name(VENDOR), local="rocm7", platform="any")
    assert rename_directory("Onnx_RT-1.22.2.post3.dist-info", new) == "Onnx_RT-1.22.2.post3+rocm7.dist-info"
    assert rename_directory("onnxruntime_rocm-1.22.2.post3.data", new) == (
        "onnxruntime_rocm-1.22.2.post3+rocm7.data"
    )
    assert rename_directory("x-1.22.2-post3+rocm7.dist-info".replace("-p", "_p"), new) == (
        "x-1.22.2_post3+rocm7.dist-info"
    )


_LABEL = st.from_regex(r"\A[a-z0-9]{1,5}(\.[a-z0-9]{1,4}){0,4}\Z")


@given(_LABEL, _LABEL)
def test_labels_are_idempotent(old: str, new: str) -> None:
    name = parse_wheel_name(f"x-{Version('1.0+' + old)}-py3-none-any.whl")
    once = relinked_name(name, local=new, platform="any", replaces=VERSION_LABEL)
    assert relinked_name(once, local=new, platform="any", replaces=VERSION_LABEL) == once
