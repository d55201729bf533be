"""The wheels of a uv.lock, and which of them are for ROCm."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.tags import Tag

from relink.report.nix.uv_lock import locked_url, read_lock, rocm_wheels
from relink.system.errors import UsageError

ONE, TWO = "1" * 64, "2" * 64
LOCK = f"""
version = 1
requires-python = ">=3.12"

[[package]]
name = "onnxruntime-rocm"
version = "1.22.2.post3"
source = {{ registry = "https://example.org/simple" }}
wheels = [
    {{ url = "https://example.org/onnxruntime_rocm-1-cp312-cp312-linux_x86_64.whl", hash = "sha256:{ONE}", size = 7 }},
    {{ url = "https://example.org/onnxruntime_rocm-1%2Blocal-cp313-cp313-linux_x86_64.whl", hash = "sha256:{TWO}" }},
    {{ path = "local.whl", hash = "sha256:{TWO}" }},
    {{ url = "https://example.org/md5-1-py3-none-any.whl", hash = "md5:0" }},
    {{ url = "https://example.org/no-wheel.whl", hash = "sha256:{ONE}" }},
    {{ url = "https://[::1/a-1-py3-none-any.whl", hash = "sha256:{ONE}" }},
]

[[package]]
name = "plain"
source = {{ virtual = "." }}
"""


def lock(directory: Path, text: str) -> Path:
    path = directory / "uv.lock"
    path.write_text(text)
    return path


def of(name: str, *files: str, more: str = "") -> str:
    """A package of a lock file with these files."""
    rows = "".join(
        f'{{ url = "https://example.org/{file}.whl", hash = "sha256:{ONE}"{more} }},\n' for file in files
    )
    return f'[[package]]\nname = "{name}"\nwheels = [\n{rows}]\n'


def test_wheels_by_their_hashes(tmp_path: Path) -> None:
    path = lock(tmp_path, LOCK)
    found = read_lock(path)
    assert [(wheel.name.version_text, wheel.sha256, wheel.size) for wheel in found] == [
        ("1", ONE, 7),
        ("1+local", TWO, None),
        ("1", None, None),
    ]
    assert locked_url(found, ONE, "a.whl", path) == found[0].url
    with pytest.raises(UsageError, match=r"a\.whl: .*uv\.lock has no wheel of this hash"):
        locked_url(found, "3" * 64, "a.whl", path)


LINUX = "manylinux_2_28_x86_64"


@pytest.mark.parametrize(
    ("name", "file", "chosen"),
    [
        ("torch", f"torch-2.9.1%2Brocm7.2.0.lw.gitabc-cp312-cp312-{LINUX}", True),
        ("torch", f"torch-2.9.1-cp312-cp312-{LINUX}", False),  # that of PyPI is for CUDA
        ("onnxruntime-rocm", f"onnxruntime_rocm-1-cp312-cp312-{LINUX}", True),
        ("onnxruntime-migraphx", f"onnxruntime_migraphx-1-cp312-cp312-{LINUX}", True),  # the profile says so
        ("bitsandbytes", f"bitsandbytes-0.50.2-py3-none-{LINUX}", True),  # one of its variants is for ROCm
        ("numpy", f"numpy-2-cp312-cp312-{LINUX}", False),
        ("rocm-sdk-core", f"rocm_sdk_core-7.10-py3-none-{LINUX}", False),  # ROCm itself
        ("rocm", "rocm-7.10-py3-none-linux_x86_64", False),
        ("a-rocm", "a_rocm-1-cp312-cp312-manylinux_2_28_aarch64", False),
        ("a-rocm", "a_rocm-1-cp312-cp312-musllinux_1_2_x86_64", False),
        ("a-rocm", "a_rocm-1-cp312-cp312-win_amd64", False),
        ("a-rocm", "a_rocm-1-py3-none-any", False),
        ("a-rocm", f"a_rocm-1-cp313-cp313t-{LINUX}", False),
        ("a-rocm", "a_rocm-1-cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64", True),
    ],
)
def test_which_are_for_rocm(tmp_path: Path, name: str, file: str, chosen: bool) -> None:
    path = lock(tmp_path, of(name, file))
    if chosen:
        assert [wheel.name.canonical for wheel in rocm_wheels(read_lock(path), path)] == [name]
    else:
        with pytest.raises(UsageError, match="it has no wheel for ROCm on Linux x86-64 by its names"):
            rocm_wheels(read_lock(path), path)


@pytest.mark.parametrize(
    ("python", "taken"),
    [(None, [0, 1, 2, 3]), ((3, 12), [0, 2, 3]), ((3, 13), [1, 2, 3]), ((3, 10), [3])],
)
def test_which_a_python_takes(tmp_path: Path, python: tuple[int, int] | None, taken: list[int]) -> None:
    tags = ("cp312-cp312", "cp313-cp313", "cp311-abi3", "py3-none")
    path = lock(tmp_path, of("a-rocm", *(f"a_rocm-1-{tag}-{LINUX}" for tag in tags)))
    found = rocm_wheels(read_lock(path), path, python)
    assert [f"{wheel.name.python}-{wheel.name.abi}" for wheel in found] == [tags[index] for index in taken]


def test_tag_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that stands for very many tags is none; what a Python takes is computed once, not for each wheel."""
    sets = ".".join(f"p{number}" for number in range(20))
    names = [f"rocm_d-{number}-py3-none-win_amd64" for number in range(9)]
    wheels = read_lock(lock(tmp_path, of("rocm-d", f"rocm_d-1-{sets}-{sets}-{sets}", *names)))
    assert len(wheels) == 9
    asked = []

    def tags(*which: object) -> list[Tag]:
        asked.append(which)
        return []

    monkeypatch.setattr("relink.report.nix.uv_lock.cpython_tags", tags)
    with pytest.raises(UsageError, match="no wheel for ROCm"):
        rocm_wheels(wheels, tmp_path, (3, 12))
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (of("other", f"a_rocm-1-py3-none-{LINUX}"), "stands below the package other"),
        (of("a-rocm", f"a_rocm-1-py3-none-{LINUX}").replace("sha256", "md5"), "has no sha256"),
        (of("a-rocm", f"a_rocm-1-py3-none-{LINUX}").replace("https", "ftp"), "none of https, http or file"),
        (of("a-rocm", f"a b/a_rocm-1-py3-none-{LINUX}"), "none of https, http or file"),
        (
            of("a-rocm", f"a_rocm-1-py3-none-{LINUX}", more=", size = -1"),
            "said to have a size that no wheel has",
        ),
        (of("a-rocm", f"a_rocm-1-py3-none-{LINUX}", more=f", size = {1 << 40}"), "a size that no wheel has"),
        (of("a-rocm", f"a_rocm-1-py3-none-{LINUX}", more=f", size = 0x{'f' * 5000}"), "that no wheel has"),
        (of("a-rocm", *(f"a_rocm-{n}-py3-none-{LINUX}" for n in range(201))), "it has 201 wheels for ROCm"),
    ],
)
def test_what_is_not_fetched(tmp_path: Path, text: str, said: str) -> None:
    path = lock(tmp_path, text)
    with pytest.raises(UsageError, match=said):
        rocm_wheels(read_lock(path), path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[", "not TOML"),
        ("x = 1", r"no uv\.lock"),
        ("package = 1", r"no uv\.lock"),
        ("[" * 40, "nested too deep"),
    ],
)
def test_what_is_none(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_lock(lock(tmp_path, text))


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_lock(tmp_path / "none")


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.sampled_from(["1", '"x"', "true", f'"sha256:{ONE}"']),
        lambda v: st.lists(v, max_size=3).map(lambda i: f"[{', '.join(i)}]"),
    )
)
def test_any_value_in_any_place(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    directory = tmp_path_factory.mktemp("lock")
    for text in (
        f"package = [{value}]",
        f"[[package]]\nwheels = {value}",
        f"[[package]]\nname = {value}\nwheels = [{{ url = {value}, hash = {value}, size = {value} }}]",
    ):
        read_lock(lock(directory, text))
