"""The wheels of a uv.lock."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relink.indexes.build.uv_lock import read_lock
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


def test_wheels_by_their_hashes(tmp_path: Path) -> None:
    path = lock(tmp_path, LOCK)
    found = read_lock(path)
    assert [(wheel.name.version_text, wheel.sha256, wheel.size) for wheel in found] == [
        ("1", ONE, 7),
        ("1+local", TWO, None),
    ]


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
