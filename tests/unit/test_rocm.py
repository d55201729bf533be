"""The table of what is known of ROCm."""

from __future__ import annotations

from pathlib import Path

import pytest

import relink.rocm
from relink.errors import UsageError
from relink.rocm import dlopens_of, rocm_facts, same_abi


def test_rocm_smi_is_one_abi_under_two_numbers() -> None:
    why = same_abi("librocm_smi64.so.1", "librocm_smi64.so.7")
    assert why is not None
    assert why == same_abi("librocm_smi64.so.7", "librocm_smi64.so.1")
    assert same_abi("librocm_smi64.so.1", "librocm_smi64.so.1") is None
    assert same_abi("libhipblas.so.2", "libhipblas.so.3") is None


def test_globs_are_matched_with_what_there_is() -> None:
    available = ("libamd_comgr.so.3", "libamd_comgr.so.2", "libfoo.so.1")
    assert set(dlopens_of("libamdhip64.so.7", available)) == {"libamd_comgr.so.3", "libamd_comgr.so.2"}
    assert set(dlopens_of("libamdhip64.so.7", ())) == {"libamd_comgr.so.*"}
    assert dlopens_of("libfoo.so.1", available) == {}


@pytest.mark.parametrize(
    "text",
    [
        "schema = 'other/1'",
        "schema = 'relink.rocm/1'\nwrong = 1",
        "[[",
        "schema='relink.rocm/1'\n[[same_abi]]\nwhy=''",
    ],
)
def test_a_damaged_table(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rocm.toml").write_text(text)
    monkeypatch.setattr(relink.rocm, "profile_directory", lambda: tmp_path)
    rocm_facts.cache_clear()
    with pytest.raises(UsageError, match=r"rocm\.toml"):
        rocm_facts()
    rocm_facts.cache_clear()
