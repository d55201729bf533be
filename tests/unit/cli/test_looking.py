"""`relink isa`, `relink doctor` and `relink WHEEL --gpu …` as a user runs them."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

import relink
from relink import cli
from relink.elf.image import Image
from relink.elf.patchelf import whole_edit
from relink.system.programs import Steps
from relink.vendors.registry import requested_gpus
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.unit.gpu.amd.build import ccob, code_object, entries_of, library, raw
from tests.unit.gpu.amd.test_runtime import READER_2, READER_3, lib
from tests.unit.gpu.amd.test_survey import fat, put

SLOW = pytest.mark.slow(reason="whole runs; the others have GPU code that is looked at")

SCHEMA = json.loads(
    (Path(relink.__file__).parent / "schemas" / "report.schema.json").read_text(encoding="utf-8")
)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line in this process: (exit code, standard output, standard error)."""
    for name in ("ROCM_PATH", "SOURCE_DATE_EPOCH", "RELINK_DEBUG", "HSA_OVERRIDE_GFX_VERSION", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def go(*words: object) -> tuple[int, str, str]:
        arguments = [str(word) for word in words]
        monkeypatch.setattr(sys, "argv", ["relink", *arguments])
        try:
            cli.main(arguments)
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return go


@pytest.fixture
def rocm(tmp_path: Path) -> Path:
    """A prefix whose HIP runtime is complete, and a rocSOLVER for gfx1030 and gfx1100."""
    where = tmp_path / "rocm" / "lib"
    lib(where / "libamdhip64.so.7", "gfx11-generic", "libamd_comgr.so.3", versions="hip_7.2")
    lib(where / "libamd_comgr.so.3", READER_2, READER_3, versions="amd_comgr_2.8")
    traps = b"".join(code_object(name) for name in ("gfx1030", "gfx1031", "gfx1100"))
    lib(where / "libhsa-runtime64.so.1", "gfx11-generic", data=traps)
    fat(where / "librocsolver.so.0", raw(entries_of("gfx1030", "gfx1100")), "libamdhip64.so.7")
    (tmp_path / "rocm" / ".info").mkdir()
    (tmp_path / "rocm" / ".info" / "version").write_text("7.2.4\n")
    return tmp_path / "rocm"


@pytest.fixture
def vendor(tmp_path: Path) -> Path:
    """A wheel whose library has code for gfx1030 and gfx1100 and a search path that has to be changed."""
    made = fat(tmp_path / "build" / "a.so", raw(entries_of("gfx1030", "gfx1100")), "librocsolver.so.0")
    return make_wheel(tmp_path / "dist", {"demo/a.so": made, "demo/__init__.py": b""})


def test_isa_of_a_wheel_a_library_and_a_directory(run: Run, vendor: Path, rocm: Path, tmp_path: Path) -> None:
    alone = put(tmp_path / "alone.so", library([raw(entries_of("gfx1030"))]))
    code, out, err = run("isa", vendor, alone, rocm)
    assert (code, err) == (0, "")
    assert "demo/a.so: raw, 1 bundle: full gfx1030 gfx1100" in out
    assert f"{alone}: raw, 1 bundle: full gfx1030" in out
    assert "lib/librocsolver.so.0: raw, 1 bundle: full gfx1030 gfx1100" in out
    assert "\x1b" not in out


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize(("gpu", "expected"), [("gfx1100", 0), ("RX 7900 XTX", 0), ("RX 6750 XT", 1)])
def test_isa_exit_code(run: Run, vendor: Path, rocm: Path, gpu: str, expected: int) -> None:
    code, out, _ = run("isa", vendor, rocm, "--gpu", gpu)
    assert code == expected
    assert ("missing: a.so (none)" in out) is bool(expected)


def test_isa_as_json(run: Run, vendor: Path, tmp_path: Path) -> None:
    code, out, _ = run("isa", vendor, "--json", "--gpu", "gfx1031", "--gpu", "gfx1030")
    document = json.loads(out)
    assert (code, document["schema"], document["kind"]) == (1, "relink.gpu/1", "wheel")
    assert document["groups"] == [
        {"name": "", "targets": ["gfx1030", "gfx1100"], "conditional": [], "removed": {}}
    ]
    assert [(gpu["target"], gpu["covered"]) for gpu in document["gpus"]] == [
        ("gfx1031", False),
        ("gfx1030", True),
    ]
    one = put(tmp_path / "x.co", code_object("gfx906"))
    several = json.loads(run("isa", vendor, one, "--json")[1])
    assert [item["path"] for item in several["reports"]] == [str(vendor), str(one)]
    assert [item["path"] for item in document["reports"]] == [str(vendor)]


def test_isa_of_nothing(run: Run, tmp_path: Path) -> None:
    code, out, err = run("isa", tmp_path / "absent.so")
    assert (code, out) == (2, "")
    assert "no such file or directory" in err.replace("\n", " ")
    code, _, err = run("isa", tmp_path, "--gpu", "RX 1")
    assert code == 2
    assert "--gpu RX 1: no target id" in err


def test_scan_finds_code_in_other_sections(run: Run, tmp_path: Path) -> None:
    bundle = put(tmp_path / "bundle.bin", raw(entries_of("gfx1030", "gfx1100"), align=16))
    source = f'__asm__(".section .rodata\\n.p2align 4\\nx:\\n.incbin \\"{bundle}\\"\\n.previous");\nint f(void) {{ return 1; }}'
    path = shared(tmp_path / "lib.so", source)
    assert "no GPU code" in run("isa", path)[1]
    assert "gfx1030 gfx1100" in run("isa", path, "--scan")[1]


def report(out: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(out)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return document


def found(document: dict[str, Any], code: str) -> list[dict[str, str]]:
    return [item for item in document["findings"] if item["code"] == code]


@SLOW
def test_the_main_command_without_a_gpu_tells_which_are_covered(
    run: Run, vendor: Path, rocm: Path, tmp_path: Path
) -> None:
    code, out, _ = run(vendor, "--prefix", rocm, "-o", tmp_path / "out", "--json")
    document = report(out)
    (info,) = found(document, "RLK407")
    assert (code, info["level"], info["message"]) == (0, "info", "runs on gfx1030 and gfx1100")
    isa = document["isa"]
    assert [item["name"] for item in isa["libraries"]] == ["rocSOLVER"]
    assert (isa["runtime"]["ccob"], isa["runtime"]["rocm"], isa["gpus"]) == (3, "7.2.4", [])


def test_a_library_that_the_prefix_dlopens_counts(run: Run, rocm: Path, tmp_path: Path) -> None:
    named = 'void *dlopen(const char *, int); void *f(void) { return dlopen("librocsolver.so.0", 1); }'
    shared(rocm / "lib" / "libfoo.so.1", named, flags=["-Wl,--enable-new-dtags,-rpath,$ORIGIN"])
    made = fat(tmp_path / "build" / "a.so", raw(entries_of("gfx1030", "gfx906")), "libfoo.so.1")
    wheel = make_wheel(tmp_path / "dist", {"demo/a.so": made})
    code, out, _ = run(
        wheel,
        "--prefix",
        rocm,
        "-o",
        tmp_path / "out",
        "--gpu",
        "gfx906",
        "--json",
    )
    document = report(out)
    assert code == 1
    assert [item["name"] for item in document["isa"]["libraries"]] == ["rocSOLVER"]
    assert "librocsolver.so.0 (rocSOLVER) has none for gfx906" in found(document, "RLK401")[0]["message"]


def test_the_main_command_refuses_a_wheel_that_lacks_the_gpu(
    run: Run, vendor: Path, rocm: Path, tmp_path: Path
) -> None:
    where = tmp_path / "out"
    code, out, _ = run(vendor, "--prefix", rocm, "-o", where, "--gpu", "RX 6750 XT", "--json")
    document = report(out)
    (gap,) = found(document, "RLK401")
    assert (code, document["output"], where.exists()) == (1, None, False)
    assert "none for gfx1031 (RX 6750 XT): it is missing from a.so (none of 1 bundles)" in gap["message"]
    assert "librocsolver.so.0 (rocSOLVER) has none" in gap["message"]
    assert document["isa"]["gpus"][0]["covered"] is False

    code, out, _ = run(
        vendor, "--prefix", rocm, "-o", where, "--gpu", "RX 6750 XT", "--allow-isa-gap", "--json"
    )
    assert code == 0
    assert [item["level"] for item in found(report(out), "RLK401")] == ["warning"]
    assert len(list(where.iterdir())) == 1


def test_the_first_line_has_cause_and_way_out_for_a_sibling_gpu(run: Run, vendor: Path, rocm: Path) -> None:
    """As TheRock#6997: code for gfx1030, and a GPU that is gfx1031."""
    first = run(vendor, "--prefix", rocm, "--gpu", "gfx1031", "--dry-run")[1].splitlines()[0]
    assert (
        first == "demo 1.0: Cannot work yet: no code for this GPU (gfx1031): HSA_OVERRIDE_GFX_VERSION=10.3.0."
    )


def test_the_first_line_leaves_out_a_gpu_that_the_runtime_takes_first(
    run: Run, vendor: Path, rocm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As TheRock#5543: an integrated GPU beside the card."""
    both = requested_gpus(["gfx1036", "gfx1100"])
    here = tuple(replace(gpu, local=True, asked=False, numbers=(n,)) for n, gpu in enumerate(both))
    monkeypatch.setattr("relink.runs.relink_wheel.find_local_gpus", lambda: here)
    code, out, _ = run(vendor, "--prefix", rocm, "--dry-run")
    assert code == 0
    way = "HIP_VISIBLE_DEVICES=1 (gfx1100), which leaves out gfx1036, which HIP takes first"
    assert f"gfx1036 (not covered: {way}), gfx1100 (covered)" in out.splitlines()[0]


def test_the_main_command_takes_a_gpu_that_is_covered(
    run: Run, vendor: Path, rocm: Path, tmp_path: Path
) -> None:
    code, out, _ = run(vendor, "--prefix", rocm, "-o", tmp_path / "out", "--gpu", "gfx1100")
    assert code == 0
    assert "RLK4" not in out


@SLOW
def test_verify_says_which_gpu_has_no_code(run: Run, vendor: Path, rocm: Path, tmp_path: Path) -> None:
    """In the wheel, or in a library that the loader takes from the prefix, which nobody has to name again."""
    run(vendor, "--prefix", rocm, "-o", tmp_path / "out", "--sandbox", "off")
    (relinked,) = (tmp_path / "out").glob("*.whl")
    assert run("verify", relinked, "--gpu", "gfx1100")[0] == 0
    code, out, _ = run("verify", relinked, "--gpu", "gfx906", "--json")
    assert (code, [item["subject"] for item in found(json.loads(out), "RLK401")]) == (1, ["gfx906"])
    fat(rocm / "lib/librocsolver.so.0", raw(entries_of("gfx1030")), "libamdhip64.so.7")
    code, out, _ = run("verify", relinked, "--gpu", "gfx1100", "--json")
    assert code == 1
    assert "librocsolver.so.0" in found(json.loads(out), "RLK401")[0]["message"]


@SLOW
@pytest.mark.parametrize(
    "pack", [code_object, lambda name: raw(entries_of(name)), lambda name: ccob(raw(entries_of(name)))]
)
def test_a_package_whose_only_gpu_code_is_kernel_files(
    run: Run, rocm: Path, tmp_path: Path, pack: Callable[[str], bytes]
) -> None:
    """As amd-aiter has them: one directory a GPU, of which each program loads its own."""
    wheel = make_wheel(tmp_path, {f"demo/hsa/{name}/pa.co": pack(name) for name in ("gfx942", "gfx1030")})
    for words in (("run", wheel, "--prefix", rocm, "--dry-run", "--json"), ("verify", wheel, "--json")):
        code, out, _ = run(*words, "--gpu", "gfx1100")
        document = json.loads(out)
        (found,) = (one for one in document["findings"] if one["code"] == "RLK401")
        assert code == 1
        assert "has code for gfx942 and gfx1030, none for gfx1100" in found["message"]
        assert found["message"].endswith("missing from hsa (none of 2 kernel files)")
        assert run(*words, "--gpu", "gfx942")[0] == 0
        if "isa" in document:
            jsonschema.validate(document, SCHEMA)
            (levels,) = document["isa"]["matrix"].values()
            assert levels == {"gfx942": "full", "gfx1030": "full", "gfx1100": "none"}
    two = make_wheel(
        tmp_path / "two", {f"demo/{n}.co": pack(name) for n, name in enumerate(("gfx942", "gfx1030"))}
    )
    # A few that are named for no GPU are parts.
    assert run("run", two, "--prefix", rocm, "--dry-run", "--gpu", "gfx942")[0] == 1
    assert run("isa", two, "--gpu", "gfx942")[0] == 1
    assert "Only GPU kernels" in run("run", wheel, "--prefix", rocm, "--dry-run", "--gpu", "gfx942")[1]


def test_a_runtime_that_is_too_old_is_an_error(run: Run, rocm: Path, tmp_path: Path) -> None:
    from tests.unit.gpu.amd.build import ccob  # noqa: PLC0415

    (rocm / "lib" / "libamd_comgr.so.3").unlink()
    lib(rocm / "lib" / "libamd_comgr.so.3", READER_2, versions="amd_comgr_2.8")
    made = fat(tmp_path / "build" / "a.so", ccob(raw(entries_of("gfx1030"))), "libamdhip64.so.7")
    wheel = make_wheel(tmp_path / "dist", {"demo/a.so": made})
    code, out, _ = run(wheel, "--prefix", rocm, "-o", tmp_path / "out")
    assert code == 1
    assert "a.so needs version 3 of compressed bundles (CCOB), this prefix's runtime has: up to 2" in out


def test_device_code_that_an_edit_damages_is_an_error(
    run: Run, vendor: Path, rocm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damage(path: Path, *arguments: Any) -> Steps[Image]:
        after = yield from whole_edit(path, *arguments)
        data = bytearray(path.read_bytes())
        at = data.index(b"__CLANG_OFFLOAD_BUNDLE__")
        struct.pack_into("<Q", data, at + 24, 1)  # one entry where there were three
        path.write_bytes(data)
        return after

    monkeypatch.setattr("relink.make.editing.whole_edit", damage)
    code, out, _ = run(vendor, "--prefix", rocm, "-o", tmp_path / "out", "--json", "--no-verify")
    document = report(out)
    (changed,) = found(document, "RLK411")
    assert (code, document["output"], changed["subject"]) == (1, None, "demo/a.so")
    assert not (tmp_path / "out").exists()


def test_doctor(run: Run, rocm: Path) -> None:
    code, out, err = run("doctor", "--prefix", rocm)
    assert (code in (0, 1), err) == (True, "")
    assert "ROCm 7.2.4 (by .info/version)" in out
    assert "all cover gfx1030 and gfx1100" in out
    code, out, _ = run("doctor", "--prefix", rocm, "--json")
    document = json.loads(out)
    assert document["schema"] == "relink.doctor/1"
    assert document["prefixes"][0]["runtime"]["code_object"] == 6
    errors = [item for item in document["findings"] if item["level"] == "error"]
    assert code == bool(errors)
    assert run("doctor", "--prefix", rocm / "absent")[0] == 2
