"""report.verdict: what came of a run in one sentence, and what to type next."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from relink.planning.model import (
    FilePlan,
    InterpreterChange,
    Plan,
    ProviderFacts,
    RpathChange,
    TargetFacts,
    WheelFacts,
)
from relink.providers.distribution import FAMILIES
from relink.report.model import OutputFacts, Report
from relink.report.summary import verdict, why_untried
from relink.system.findings.model import Finding, finding

TARGET = TargetFacts("/lib64/ld.so", "2.36", ("/lib",), None)
WHEEL = WheelFacts("demo-1.0-py3-none-any.whl", "a" * 64, "demo", "1.0", ("py3-none-any",))
NO_INTERPRETER = InterpreterChange(None, None)
CHANGED = FilePlan(
    "demo/a.so", "runpath", (), RpathChange("/opt/rocm/lib", "/p", "runpath", "runpath"), NO_INTERPRETER
)
SAME = FilePlan("demo/b.so", "nothing", (), RpathChange(None, None, None, None), NO_INTERPRETER)
OUTPUT = OutputFacts("dist/demo-1.0+rocm7.whl", "b" * 64)
PIP = "pip install dist/demo-1.0+rocm7.whl"
HIP = finding("RLK130", "libamdhip64", "6 and 7 meet", "Use one.")
ONE_HIP = "a ROCm whose libraries agree on one HIP runtime (--prefix DIR), then the same command"
WRITTEN = f"Written to {OUTPUT.path}."
COVERED = {"common": {"targets": ["gfx908", "gfx90a"]}}
HERE = {
    **COVERED,
    "gpus": [
        {"target": "gfx90a", "local": True, "covered": True},
        {"target": "gfx1031", "local": True, "covered": False},
        {"target": "gfx942", "local": False, "covered": False},
    ],
}


def report(*findings: Finding, files: tuple[FilePlan, ...] = (CHANGED, SAME), **facts: Any) -> Report:
    plan = Plan(WHEEL, "", TARGET, (), files, findings)
    return Report(("relink",), plan, facts.pop("output", None), **facts)


def missing(soname: str, step: str | None = None) -> Finding:
    return finding("RLK101", soname, f"{soname} is not there", step=step)


def left(without: str) -> Finding:
    return replace(finding("RLK124", "demo/b.so", "left as it is"), without=without)


@pytest.mark.parametrize(
    ("made", "text", "step"),
    [
        (report(output=OUTPUT, verified=1), "Loads; checked by ld.so for 1 file.", PIP),
        (
            report(output=OUTPUT, verified=3, isa=COVERED),
            "Loads; checked by ld.so for 3 files. GPUs: gfx908, gfx90a.",
            PIP,
        ),
        (
            report(output=OUTPUT, verified=1, isa=HERE),
            "Loads; checked by ld.so for 1 file. GPUs: gfx908, gfx90a. Of this machine: gfx90a (covered), gfx1031 (not covered).",
            PIP,
        ),
        (report(output=OUTPUT), "Should load; ld.so was not asked.", PIP),
        (report(output=OUTPUT, files=(SAME,)), "Loads as it is: no file has to change.", PIP),
        (report(output=OUTPUT, files=()), "No ELF file in the wheel: nothing to relink.", PIP),
        (report(), "Would load: 1 of 2 ELF files would change.", "the same command without --dry-run"),
        (
            report(*map(left, ("solvers (libs.so.1)", "sparse")), output=OUTPUT, verified=1, isa=COVERED),
            "Loads, without solvers (libs.so.1) and sparse; checked by ld.so for 1 file. GPUs: gfx908, gfx90a.",
            PIP,
        ),
        (
            report(finding("RLK102", "liba.so.1", "m"), output=OUTPUT, verified=1),
            "Loads; checked by ld.so for 1 file. liba.so.1 is to be there at run time, as --allow-missing says.",
            PIP,
        ),
        (
            report(missing("librccl.so.1", "apt install librccl1")),
            "Cannot work yet: 1 library is missing.",
            "apt install librccl1, then the same command",
        ),
        (
            report(
                missing("liba.so", "apt install a"), missing("libb.so", "apt install b"), missing("libc.so")
            ),
            "Cannot work yet: 3 libraries are missing.",
            "apt install a b; a prefix that has libc.so (--prefix DIR), then the same command",
        ),
        (
            report(missing("liba.so"), missing("libb.so")),
            "Cannot work yet: 2 libraries are missing.",
            "a prefix that has liba.so, libb.so (--prefix DIR), then the same command",
        ),
        (
            report(
                replace(
                    finding(
                        "RLK301", "/p/a", "needs G_2 of libc.so.6; x goes up to G_1", step="--interpreter /l"
                    ),
                    cause="c",
                ),
                replace(finding("RLK302", "/p/a", "imports f@G_2 of libc.so.6"), cause="c"),
            ),
            "Cannot work yet: the prefix was built for a newer glibc than the target's.",
            "relink rules RLK301",
        ),
        (
            report(
                replace(finding("RLK301", "w/a.so", "needs G_2 of libc.so.6; x goes up to G_1"), cause="c")
            ),
            "Cannot work yet: the wheel was built for a newer glibc than the target's.",
            "relink rules RLK301",
        ),
        (
            report(HIP),
            "Cannot work yet: two HIP runtimes would be loaded.",
            ONE_HIP,
        ),
        (
            report(finding("RLK602", "w", "m")),
            "Nothing written: not verified (w).",
            "relink rules RLK602",
        ),
        (
            report(finding("RLK602", "w", "m"), output=OUTPUT),
            "Written to dist/demo-1.0+rocm7.whl in spite of: not verified (w).",
            "relink rules RLK602",
        ),
    ],
)
def test_verdict(made: Report, text: str, step: str) -> None:
    found = verdict(made)
    assert (found.text, found.step) == (text, step)


def test_the_level_is_the_worst_that_is_left() -> None:
    assert verdict(report(finding("RLK201", "a", "m"))).level == "info"
    assert verdict(report(left("sparse"))).level == "warning"
    for harmless in ("RLK116", "RLK502", "RLK508", "RLK604"):
        told = finding(harmless, "a", "m", level="warning")
        assert verdict(report(told)).level == "info"
        assert verdict(report(told, left("sparse"))).level == "warning"
    assert verdict(report(missing("liba.so"))).level == "error"


def test_a_path_can_be_typed() -> None:
    made = report(output=OutputFacts("my wheels/demo.whl", "b" * 64))
    assert verdict(made).step == "pip install 'my wheels/demo.whl'"


AGAIN = ("relink", "my wheel.whl", "--prefix", "/p")


def commands(*findings: Finding, command: tuple[str, ...] = AGAIN, **facts: Any) -> tuple[str, ...]:
    return verdict(replace(report(*findings, **facts), command=command)).commands


def test_the_same_command_is_written_out() -> None:
    assert commands(command=(*AGAIN, "--dry-run")) == ("relink 'my wheel.whl' --prefix /p",)
    assert commands(output=OUTPUT) == (PIP,)
    passed = finding("RLK520", "a.whl", "m", step="--python '/p/my python'")
    assert commands(passed) == ("relink 'my wheel.whl' --prefix /p --python '/p/my python'",)
    untried = finding("RLK301", "a.so", "m", step="--interpreter '/p/my ld.so'")
    assert commands(untried) == ("relink rules RLK301",)


def test_packages_and_then_the_same_command() -> None:
    suite = missing("libc.so.1", "apt install -t experimental libc1")
    assert commands(suite)[0] == "apt install -t experimental libc1"
    assert "apt install -o x y" not in commands(missing("liba.so.1", "apt install -o x y"))
    two = (missing("liba.so.1", "apt install liba1"), missing("libb.so.1", "apt install libb1"))
    assert commands(*two) == ("apt install liba1 libb1", "relink 'my wheel.whl' --prefix /p")
    assert commands(*two, missing("libc.so.1")) == ("apt install liba1 libb1",), "it would fail again"


def test_some_of_what_is_missing_has_a_package() -> None:
    """The command that was tried goes on without; the package is told beside it."""
    lost = (missing("librccl.so.1", "apt install librccl1"), missing("libamd_smi.so.26"))
    way = ("--stub", "librccl.so.1", "--stub", "libamd_smi.so.26")
    again = f"relink 'my wheel.whl' --prefix /p {' '.join(way)}"
    made = replace(report(*lost, way_out=way), command=AGAIN)
    own = "or, with librccl.so.1 itself: apt install librccl1, then the same command"
    assert verdict(made).step == f"{again}; {own}"
    assert verdict(made).commands == (again, "apt install librccl1")


def test_no_package_of_another_release_is_advised() -> None:
    """The runtime of the release that the wheel needs is in no package, so those beside it are of another one."""
    blas, hip = missing("libhipfft.so.0", "apt install libhipfft0"), missing("libamdhip64.so.7")
    assert verdict(report(blas, hip)).commands == ()
    assert "a ROCm that has libhipfft.so.0, libamdhip64.so.7" in str(verdict(report(blas, hip)).step)
    assert verdict(report(blas)).commands == ("apt install libhipfft0",)


def test_what_decides_all_else_is_the_first_reason() -> None:
    glibc = finding("RLK301", "/p/liba.so", "needs GLIBC_2.43 of libc.so.6; the target has 2.36")
    why = "the prefix was built for a newer glibc than the target's; 1 library is missing"
    assert verdict(report(missing("liba.so"), glibc)).text == f"Cannot work yet: {why}."


def test_the_wheel_that_fits_is_fetched() -> None:
    other = finding("RLK521", "a.whl", "m", "Get the manylinux wheel.", step="relink fetch demo==1.0")
    assert verdict(report(other)).step == "get the manylinux wheel: relink fetch demo==1.0"
    assert commands(other, missing("liba.so", "apt install liba1")) == ("relink fetch demo==1.0",)
    assert commands(replace(other, step="relink fetch demo; curl evil")) == ()


def test_a_package_for_imports_that_nothing_exports_is_the_next_step() -> None:
    unbound = finding("RLK302", "demo/a.so", "imports miopenCreate", step="apt install libmiopen1")
    made = report(unbound)
    assert verdict(made).step == "apt install libmiopen1, then the same command"
    assert verdict(made).commands == ("apt install libmiopen1",)
    strange = report(replace(unbound, step="curl evil | sh"))
    assert verdict(strange).step == "relink rules RLK302"


def test_two_ways_are_two_commands() -> None:
    """Which of them fits, a person has to decide."""
    made = report(
        finding("RLK302", "demo/a.so", "imports hipFree"),
        way_out=("--preload", "liba.so.6"),
        other_ways_out=(("--preload", "liba.so.7"),),
    )
    made = replace(made, command=("relink", "demo.whl"))
    both = ("relink demo.whl --preload liba.so.6", "relink demo.whl --preload liba.so.7")
    assert (verdict(made).step, verdict(made).commands) == ("; or ".join(both), both)


def test_another_prefix_takes_the_place_of_those_that_were_named() -> None:
    way = ("--prefix", "/q")
    lost = missing("libamdhip64.so.7")
    for named in (("--prefix", "/p", "--prefix", "/r"), ("--prefix=/p",), ()):
        made = replace(report(lost, way_out=way), command=("relink", "a.whl", *named, "-o", "d"))
        step = "relink a.whl -o d --prefix /q"
        assert (verdict(made).step, verdict(made).commands) == (f"/q serves the wheel: {step}", (step,))
        less = verdict(replace(made, way_out=(*way, "--stub", "libb.so.1")))
        assert less.step == f"/q serves the wheel: {step} --stub libb.so.1"
    packaged = report(missing("libamdhip64.so.7", "apt install libamdhip64-7"), way_out=way)
    install = "apt install libamdhip64-7"
    assert verdict(packaged).step == f"{install}, then the same command; or, with /q: relink --prefix /q"


def test_no_provider_has_a_library_of_the_vendors() -> None:
    def text(*providers: ProviderFacts, lost: str = "libamdhip64.so.7") -> str:
        made = report(missing(lost))
        return verdict(replace(made, plan=replace(made.plan, providers=providers))).text

    usr, mine = (ProviderFacts("prefix", path, None, has_none=True) for path in ("/usr", "/mine"))
    assert text(usr) == "Cannot work yet: no ROCm is in /usr; 1 library is missing."
    assert text(usr, mine) == "Cannot work yet: no ROCm is in /usr and /mine; 1 library is missing."
    plain = "Cannot work yet: 1 library is missing."
    assert text(usr, ProviderFacts("prefix", "/p", None)) == text() == text(usr, lost="libtbb.so.12") == plain


def test_what_is_no_command_is_not_one() -> None:
    assert commands(missing("libc.so.1")) == ()


def test_a_stranger_s_report_gives_no_command_of_its_own() -> None:
    assert commands(missing("liba.so.1", "apt install a; rm -rf x")) == ("relink 'my wheel.whl' --prefix /p",)
    assert commands(missing("liba.so.1", "curl example.org")) == ("relink 'my wheel.whl' --prefix /p",)
    assert commands(command=("rm", "-rf", "x", "--dry-run")) == ()
    assert commands(finding("RLK520", "a.so", "m", step="--python 'x")) == ()
    for step in ("relink repair torch --python p; id", "relink repair torch --index x --python p"):
        assert commands(finding("RLK302", "a.so", "m", step=step)) == ("relink rules RLK302",)


def test_an_error_of_a_newer_relink_is_named_by_its_code() -> None:
    found = verdict(report(Finding("RLK999", "error", "a.so", "m", "r")))
    assert found.text == "Nothing written: RLK999 (a.so)."


ROOT, NETWORK = "it needs root and the network", "it needs the network"
CHANGES, BOTH = "it changes the environment", "it needs the network and changes the environment"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("relink 'my w.whl' --prefix /opt/rocm --stub librccl.so.1", ""),
        ("relink rules RLK302", ""),
        ("relink doctor", ""),
        ("relink w.whl --prefix DIR", "DIR is to be named"),
        ("relink repair torch --python v/bin/python", BOTH),
        ("relink repair torch --wheel w.whl", CHANGES),
        ("relink fetch jax", NETWORK),
        ("pip download --no-deps https://example.com/a.whl", NETWORK),
        ("export HSA_OVERRIDE_GFX_VERSION=10.3.0", "it changes your shell"),
        ("pip install '/a b/w.whl' -c constraints.txt", CHANGES),
        ("pip install numpy", BOTH),
        ("v/bin/python -m pip install numpy", BOTH),
        ("uv pip install --python v/bin/python w.whl", CHANGES),
        ("uv add --project . w.whl", BOTH),
        ("'", ""),
        *((f"{install} rocblas", ROOT) for install in FAMILIES.values() if install),
    ],
)
def test_why_a_command_was_not_tried(command: str, why: str) -> None:
    assert why_untried(command) == why
