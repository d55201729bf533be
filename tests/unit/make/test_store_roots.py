"""Store paths that an output names, and roots that keep them; tests/nix has Nix collect garbage."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.make.store_roots import register_roots, store_paths
from relink.planning.model import (
    FilePlan,
    InterpreterChange,
    Plan,
    ProviderFacts,
    RpathChange,
    TargetFacts,
    WheelFacts,
)

ITEM = "0123456789abcdfghijklmnpqrsvwxyz"

Planned = Callable[[str], Plan]


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planned:
    """A plan whose files name two store paths, for a provider of some kind."""
    store = tmp_path / "store"
    store.mkdir()
    monkeypatch.setenv("NIX_STORE_DIR", str(store))

    def plan(kind: str) -> Plan:
        entries = f"$ORIGIN:{store}/{ITEM}-clr-7.2.4/lib:/opt/rocm/lib:{store}/{ITEM}-clr-7.2.4/lib64"
        rpath = RpathChange(None, entries, None, "runpath")
        loader = InterpreterChange("/lib64/ld.so", f"{store}/{ITEM}-glibc-2.40/lib/ld.so")
        file = FilePlan("demo/a.so", "runpath", (), rpath, loader)
        return Plan(
            WheelFacts("x.whl", "00", "x", "1", ("py3-none-any",)),
            "x.whl",
            TargetFacts("/lib64/ld.so", "2.36", ("/lib",), "/usr/bin/python3"),
            (ProviderFacts(kind, str(store), "7.2.4"),),
            (file,),
            (),
        )

    return plan


def nix_store(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a stand-in for nix-store on the path, with what it does."""
    program = directory / "nix-store"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def test_each_store_path_once_in_the_plans_order(planned: Planned, tmp_path: Path) -> None:
    store = tmp_path / "store"
    expected = (f"{store}/{ITEM}-clr-7.2.4", f"{store}/{ITEM}-glibc-2.40")
    assert store_paths(planned("nix-store")) == expected
    assert store_paths(planned("prefix")) == ()


@pytest.mark.parametrize(
    ("kind", "directory", "found"),
    [
        ("nix-store", None, [("RLK701", "2 store paths: ")]),
        ("prefix", "roots", [("RLK702", "no store path is named")]),
        ("prefix", None, []),
    ],
)
def test_without_roots(
    planned: Planned, kind: str, directory: str | None, found: list[tuple[str, str]]
) -> None:
    findings = register_roots(planned(kind), "/out/x.whl", directory)
    assert len(findings) == len(found)
    for finding, (code, text) in zip(findings, found, strict=True):
        assert (finding.code, finding.subject) == (code, "/out/x.whl")
        assert text in finding.message


def test_a_root_for_each(planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nix_store(tmp_path, monkeypatch, f'echo "$@" >> {tmp_path}/asked')
    roots, store = tmp_path / "roots", tmp_path / "store"
    (finding,) = register_roots(planned("nix-store"), "x.whl", str(roots))
    assert finding.code == "RLK702"
    assert f"2 in {roots}" in finding.message
    assert (tmp_path / "asked").read_text().splitlines() == [
        f"--add-root {roots}/{ITEM}-{name} --indirect --realise {store}/{ITEM}-{name}"
        for name in ("clr-7.2.4", "glibc-2.40")
    ]


def test_a_root_that_nix_refuses(planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nix_store(tmp_path, monkeypatch, "echo 'error: cannot make it' >&2; exit 1")
    (finding,) = register_roots(planned("nix-store"), "x.whl", str(tmp_path / "roots"))
    assert finding.code == "RLK703"
    assert "cannot make it" in finding.message


def test_a_directory_that_cannot_be_made(planned: Planned, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (finding,) = register_roots(planned("nix-store"), "x.whl", str(tmp_path / "file" / "roots"))
    assert finding.code == "RLK703"
