"""resolve.grafts: what is copied from a second prefix, what is refused, and a wheel with copies from the plan to a call."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.errors import UsageError
from relink.gpu import read_file
from relink.library import apply, diff, plan, relink, verify
from relink.plans.model import Plan
from relink.report.model import Report, to_json
from tests.support.cc import shared
from tests.support.command import Run
from tests.support.donors import HELP, HIP, LICENCE, RCCL, Donors, build_donors, licence, release
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.wheels import make_wheel
from tests.support.works import TAG
from tests.unit.gpu.build import code_object, hip, raw

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


@pytest.fixture
def donors(tmp_path: Path) -> Donors:
    return build_donors(tmp_path)


def errors(report: Report) -> list[tuple[str, str]]:
    return [(found.code, found.subject) for found in report.findings if found.level == "error"]


def message(report: Report, code: str, subject: str) -> str:
    (found,) = (found for found in report.findings if (found.code, found.subject) == (code, subject))
    return found.message


def written(report: Report) -> Path:
    assert report.ok, report.findings
    assert report.output is not None
    return Path(report.output.path)


def planned(donors: Donors, **more: object) -> Report:
    return relink(donors.wheel, donors.options("planned", dry_run=True, **more))


def test_without_the_option_the_library_is_missing(donors: Donors) -> None:
    assert errors(planned(donors, graft_from=())) == [("RLK101", RCCL)]


def test_a_relinked_wheel_with_copies(donors: Donors) -> None:
    report = relink(donors.wheel, donors.options("out"))
    output = written(report)
    assert report.verified == 3  # the member and both copies
    with zipfile.ZipFile(output) as archive:
        archive.extractall(donors.root / "site")
        names = archive.namelist()
        (sbom,) = (name for name in names if name.endswith(".cdx.json"))
        components = json.loads(archive.read(sbom))["components"]
        texts = {name: archive.read(name) for name in names if "/licenses/" in name}
    # Where the copies lie, under their plain sonames; the directory's name tells one set of contents from another.
    (directory,) = {
        name.rpartition("/")[0] for name in names if "relink-grafts-" in name and ".libs/" in name
    }
    sources = {name: (donors.donor / "lib" / name).read_bytes() for name in (RCCL, HELP)}
    listed = "".join(f"{name} {hashlib.sha256(data).hexdigest()}\n" for name, data in sorted(sources.items()))
    assert directory == f"demo.libs/relink-grafts-{hashlib.sha256(listed.encode()).hexdigest()[:8]}"
    # The real loader, and a call through all of it.
    code = f"import ctypes; print(ctypes.CDLL({str(donors.root / 'site/demo/a.so')!r}).total())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("437\n", "")
    # Licences and SBOM: one is known, of the other it is said that none is.
    assert list(texts.values()) == [LICENCE.encode()]
    by_name = {
        one["name"]: one
        for one in components
        if {"name": "relink:graft", "value": "true"} in one["properties"]
    }
    assert by_name[RCCL]["licenses"] == [{"license": {"name": "BSD-3-clause"}}]
    assert (
        by_name[RCCL]["pedigree"]["ancestors"][0]["hashes"][0]["content"]
        == hashlib.sha256(sources[RCCL]).hexdigest()
    )
    assert {"name": "relink:licence-text", "value": "none known"} in by_name[HELP]["properties"]
    assert [(found.code, found.level) for found in report.findings if found.subject == HELP] == [
        ("RLK140", "info"),
        ("RLK143", "warning"),
    ]
    assert [graft["soname"] for graft in to_json(report)["grafts"]] == [RCCL, HELP]
    # The same bytes again, explained by its plan, and nothing left to do.
    again = relink(donors.wheel, donors.options("again"))
    assert again.output is not None
    assert again.output.sha256 == hashlib.sha256(output.read_bytes()).hexdigest()
    assert not [found for found in verify(output).findings if found.level == "error"]
    for more in ({}, {"graft_from": ()}):
        twice = relink(output, donors.options("twice", **more))
        assert written(twice).read_bytes() == output.read_bytes()
        assert [graft.soname for graft in twice.grafts] == [RCCL, HELP]


@pytest.mark.slow(reason="two relinks or more")
def test_the_difference_is_compared_with_the_second_prefix(donors: Donors) -> None:
    output = written(relink(donors.wheel, donors.options("out")))
    assert diff(donors.wheel, output, donors.options("x")).ok
    evil = donors.root / output.name
    with zipfile.ZipFile(output) as old, zipfile.ZipFile(evil, "w") as new:
        for item in old.infolist():
            data = old.read(item)
            new.writestr(item, data[:-1] + b"!" if item.filename.endswith(HELP) else data)
    unexplained = diff(donors.wheel, evil, donors.options("x")).unexplained
    (found,) = (text for text in unexplained if HELP in text and "RECORD" not in text)
    assert "are not what relink writes" in found


@pytest.mark.slow(reason="two relinks or more")
def test_a_saved_plan_copies_the_same(donors: Donors) -> None:
    output = written(relink(donors.wheel, donors.options("out")))
    plan(donors.wheel, donors.options("planned")).save(donors.root / "plan.json")
    saved = Plan.load(donors.root / "plan.json")
    assert written(apply(saved, output_directory=donors.root / "applied")).read_bytes() == output.read_bytes()
    donors.put(RCCL, "int ncclCount(void){return 1;}")
    with pytest.raises(UsageError, match=r"librccl\.so\.1 is not the file that the plan was made with"):
        apply(saved, output_directory=donors.root / "applied")


def test_a_chosen_library_brings_what_it_needs_and_no_other_comes(donors: Donors) -> None:
    other = donors.put("libother.so.2", "int other(void){return 1;}")
    hip_runtime = donors.prefix / "lib" / HIP
    user = "extern int other(void), ncclCount(void); int total(void){return other() + ncclCount();}"
    member = shared(
        donors.root / "members/b.so",
        user,
        needed=[other, donors.donor / "lib" / RCCL, hip_runtime],
        flags=["-Wl,--allow-shlib-undefined"],
    )
    wheel = make_wheel(donors.root / "two", {"demo/__init__.py": b"", "demo/b.so": member}, tag=TAG)
    chosen = relink(wheel, donors.options("out", graft=(RCCL,), dry_run=True))
    assert [graft.soname for graft in chosen.grafts] == [RCCL, HELP]
    assert errors(chosen) == [("RLK101", "libother.so.2")]
    every = relink(wheel, donors.options("out", dry_run=True))
    assert {graft.soname for graft in every.grafts} == {RCCL, HELP, "libother.so.2"}
    assert every.ok


def test_what_no_member_misses_cannot_be_asked_for(donors: Donors) -> None:
    report = planned(donors, graft=(RCCL, "libnobody.so.1"))
    assert errors(report) == [("RLK141", "libnobody.so.1")]


def test_the_soname_alone_says_not_where_from(donors: Donors) -> None:
    with pytest.raises(UsageError, match="--graft-from DIR"):
        planned(donors, graft_from=(), graft=(RCCL,))


# Each that must be refused


def hip_of_another_release(donors: Donors) -> str:
    """librccl needs HIP 6: two runtimes would meet."""
    other = shared(donors.donor / "lib/libamdhip64.so.6", "int hipOne(void){return 6;}")
    donors.put(RCCL, "extern int hipOne(void); int ncclCount(void){return hipOne();}", [other])
    return "it needs libamdhip64.so.6, which the prefix does not have: a second runtime"


def another_major(donors: Donors) -> str:
    release(donors.donor, "6.4.3")
    return "it is of ROCm 6, and the prefix has ROCm 7"


def unknown_release(donors: Donors) -> str:
    shutil.rmtree(donors.donor / ".info")
    donors.put(RCCL, "int ncclCount(void){return 1;}")
    return "nothing says that it is of the prefix's release of ROCm"


def another_version_in_the_prefix(donors: Donors) -> str:
    shared(donors.prefix / "lib/librccl.so.2", "int ncclCount(void){return 2;}")
    return "has librccl.so.2, and a process must not have two versions"


def another_soname(donors: Donors) -> str:
    (donors.donor / "lib" / RCCL).unlink()
    made = shared(donors.root / "librccl.so.9", "int ncclCount(void){return 2;}")
    (donors.donor / "lib" / RCCL).write_bytes(made.read_bytes())
    return "its own soname is librccl.so.9"


def damaged(donors: Donors) -> str:
    path = donors.donor / "lib" / RCCL
    path.write_bytes(path.read_bytes()[:200])
    return "it cannot be read"


@pytest.mark.parametrize(
    "change",
    [
        hip_of_another_release,
        another_major,
        unknown_release,
        another_version_in_the_prefix,
        another_soname,
        damaged,
    ],
)
def test_what_is_not_copied(donors: Donors, change: Callable[[Donors], str]) -> None:
    assert planned(donors).ok
    reason = change(donors)
    report = planned(donors)
    assert ("RLK141", RCCL) in errors(report)
    assert ("RLK101", RCCL) in errors(report)
    assert reason in message(report, "RLK141", RCCL)
    assert report.grafts == ()


def test_a_runtime_is_not_copied(donors: Donors) -> None:
    (donors.prefix / "lib" / HIP).rename(donors.prefix / "lib/libelse.so.1")
    shared(donors.donor / "lib" / HIP, "int hipOne(void){return 7;}")
    assert "it is a runtime of ROCm" in message(planned(donors), "RLK141", HIP)


def test_a_licence_that_forbids_it(donors: Donors) -> None:
    licence(donors.donor, "librccl1", LICENCE.replace("BSD-3-clause", "GPL-3+"))
    report = planned(donors)
    assert ("RLK142", RCCL) in errors(report)
    assert "its licence, GPL-3+, is one that forbids it" in message(report, "RLK142", RCCL)
    assert report.grafts == ()


def test_a_version_that_the_prefix_lacks(donors: Donors) -> None:
    """The copy is judged as a member: an import of its own that nothing has is an error."""
    versioned = []
    for directory, node in ((donors.prefix / "lib", "hip_7"), (donors.root / "newer", "hip_9")):
        script = donors.root / f"{node}.map"
        script.write_text(f"{node} {{ global: hipOne; }};")
        source = "int hipOne(void){return 7;}"
        (directory / HIP).unlink(missing_ok=True)
        versioned.append(shared(directory / HIP, source, flags=[f"-Wl,--version-script={script}"]))
    collect = donors.donor / "lib" / HELP
    rccl = "extern int hipOne(void), collect(void); int ncclCount(void){return hipOne() + collect();}"
    donors.put(RCCL, rccl, [versioned[1], collect])
    report = planned(donors)
    assert {code for code, _ in errors(report)} == {"RLK301", "RLK302"}
    (found,) = (found for found in report.findings if found.code == "RLK301")
    assert "hip_9" in found.message
    donors.put(RCCL, rccl, [versioned[0], collect])
    assert planned(donors).ok


def test_a_name_that_leads_elsewhere(donors: Donors, run: Run) -> None:
    """Only what a member misses is looked up, and only by a plain name; the option alone names no file."""
    words = (
        "--prefix",
        donors.prefix,
        "--graft-from",
        donors.donor,
        "--graft",
        f"../lib/{RCCL}",
        "--dry-run",
    )
    code, out, _ = run(donors.wheel, *words)
    assert code == 1
    assert f"error RLK141 ../lib/{RCCL}: --graft: no member of the wheel misses a library of that name" in out


def test_a_hostile_library_is_refused_before_patchelf_and_the_loader(donors: Donors) -> None:
    flags = ["-Wl,--audit,libaudit.so"]
    hip = donors.prefix / "lib" / HIP
    donors.put(RCCL, "extern int hipOne(void); int ncclCount(void){return hipOne();}", [hip], flags)
    report = relink(donors.wheel, donors.options("out"))
    assert [code for code, _ in errors(report)] == ["RLK605"]
    assert report.output is None
    assert not list((donors.root / "out").glob("*"))


_KERNELS = """
extern int hipOne(void); int ncclCount(void){return hipOne();}
__asm__(".section .hip_fatbin,\\"a\\",@progbits\\n.p2align 12\\n.globl __hip_fatbin_1\\n"
        "__hip_fatbin_1: .incbin \\"PAYLOAD\\"\\n.previous\\n");
extern const char __hip_fatbin_1[];
struct wrapper { unsigned magic, version; const void *bundle; void *reserved; };
struct wrapper one __attribute__((section(".hipFatBinSegment"), used, aligned(8))) = {0x48495046, 1, __hip_fatbin_1, 0};
struct wrapper two __attribute__((section(".hipFatBinSegment"), used, aligned(8))) = {0x48495046, 1, __hip_fatbin_1, 0};
"""


def test_a_gpu_that_the_copy_has_no_code_for(donors: Donors) -> None:
    """Its wrappers name the bundle by a symbol, both the same one, as clang's -fgpu-rdc has it."""
    payload = donors.root / "payload"
    payload.write_bytes(raw({hip("gfx1030"): code_object("gfx1030")}))
    donors.put(RCCL, _KERNELS.replace("PAYLOAD", str(payload)), [donors.prefix / "lib" / HIP])
    report = planned(donors, gpus=("gfx1100",))
    assert "RLK401" in [code for code, _ in errors(report)]
    assert RCCL in next(found.message for found in report.findings if found.code == "RLK401")
    covered = relink(donors.wheel, donors.options("out", gpus=("gfx1030",)))
    assert written(covered).exists()
    assert not [found for found in covered.findings if found.code == "RLK410"]
    path = covered.grafts[0].path
    with zipfile.ZipFile(written(covered)) as archive:
        (donors.root / "edited").write_bytes(archive.read(path))
    (bundle,) = read_file(donors.root / "edited").bundles
    assert [entry.target and str(entry.target) for entry in bundle.entries if entry.usable] == ["gfx1030"]


def test_kernels_beside_a_library_do_not_come_along(donors: Donors) -> None:
    kernels = donors.donor / "lib/rocblas/library"
    kernels.mkdir(parents=True)
    (kernels / "TensileLibrary_lazy_gfx1030.dat").write_bytes(b"x")
    blas = donors.put(
        "librocblas.so.5", "int rocblas_create_handle(void){return 1;}", [donors.prefix / "lib" / HIP]
    )
    user = "extern int rocblas_create_handle(void); int g(void){return rocblas_create_handle();}"
    member = shared(donors.root / "members/b.so", user, needed=[blas])
    wheel = make_wheel(donors.root / "blas", {"demo/__init__.py": b"", "demo/b.so": member}, tag=TAG)
    report = relink(wheel, donors.options("out", dry_run=True))
    assert "it loads kernel files from" in message(report, "RLK141", "librocblas.so.5")
