"""planning.wheel_plan: what has nothing to do with the vendor is left alone; and options that lead out of a refusal are tried."""

from __future__ import annotations

import dataclasses
import shlex
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace
from packaging.requirements import Requirement

from relink.elf.image import read_image
from relink.library import relink
from relink.planning.assess import Trace
from relink.planning.contents import Contents
from relink.planning.model import Reliance
from relink.planning.options import Options
from relink.planning.wheel_plan import PreparedPlan, find_ways_out, keep_what_helps, list_metadata_lines
from relink.providers.distribution import Distribution
from relink.report.summary import verdict
from relink.runs.relink_wheel import make_plan
from relink.system.errors import UsageError
from relink.system.findings.model import finding
from relink.system.progress import Clock
from tests.support.cc import shared
from tests.support.command import Run
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.therock import device_code
from tests.support.wheels import make_wheel
from tests.support.works import TAG, VENDOR_PATH, Works

SLOW = pytest.mark.slow(reason="several plans, and two runs")

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
LOOSE = "-Wl,--allow-shlib-undefined"


@pytest.fixture
def prefix(works: Works, tmp_path: Path) -> Path:
    """The small ROCm, a copy to be changed."""
    directory = tmp_path / "rocm"
    for path in works.prefix.rglob("*"):
        if path.is_file():
            place = directory / path.relative_to(works.prefix)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
    return directory


def member(path: Path, source: str, *needed: Path) -> Path:
    return shared(
        path.parent / "members" / path.name, source, needed=list(needed), flags=[VENDOR_PATH, LOOSE]
    )


def wheel(tmp_path: Path, source: str, *needed: Path) -> Path:
    library = member(tmp_path / "a.so", source, *needed)
    return make_wheel(tmp_path, {"demo/__init__.py": b"", "demo/a.so": library}, tag=TAG)


def old(tmp_path: Path, soname: str, source: str) -> Path:
    """A library of the vendor's, to link with."""
    return shared(tmp_path / "old" / soname, source)


RCCL = "int ncclGetVersion(int*p){return 0;}"
USES_RCCL = "extern int ncclGetVersion(int*); int g(void){return ncclGetVersion(0);}"


HIP_USER = "extern int hip(void); int g(void){return hip() + 1;}"


def proposed(out: str) -> list[str]:
    """The command of the last line, as a shell takes it apart."""
    name, *words = shlex.split(out.splitlines()[-1])
    assert name == "relink", out
    return words


def tried(run: Run, *words: str | Path) -> tuple[list[str], str]:
    """Run a command that is refused and the one that it prints; the options that were added, and the last output."""
    code, out, _ = run(*words)
    assert code == 1, out
    command = proposed(out)
    assert command[: len(words)] == [str(word) for word in words]
    code, again, error = run(*command)
    assert code == 0, (again, error)
    return command[len(words) :], again


@SLOW
def test_a_stub_for_an_optional_library(run: Run, prefix: Path, tmp_path: Path) -> None:
    made = wheel(tmp_path, USES_RCCL, old(tmp_path, "librccl.so.1", RCCL))
    added, out = tried(run, made, "--prefix", prefix, "-o", tmp_path / "out")
    assert added == ["--stub", "librccl.so.1"]
    assert "Loads; checked by ld.so" in out


@SLOW
def test_another_prefix_of_the_machine(
    run: Run, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the place of what was named, and may need an option more; a plan with it was made."""
    runtime = "int hipMalloc(void){return 0;}"
    hip = shared(tmp_path / "new/lib/libamdhip64.so.7", runtime)
    shared(prefix / "lib/libamdhip64.so.6", runtime)
    made = wheel(tmp_path, "int hipMalloc(void); int g(void){return hipMalloc();}", hip)
    words = [str(made), "-o", str(tmp_path / "out")]
    assert "Next: a ROCm that has libamdhip64.so.7" in run(*words, "--prefix", prefix)[1]
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "new"))
    for named in (["--prefix", str(prefix)], [f"--prefix={prefix}", "--prefix", "/usr"]):
        out = run(*words, *named)[1]
        assert f"Next: {tmp_path}/new serves the wheel:" in out
        assert proposed(out) == [*words, "--prefix", f"{tmp_path}/new"]
    assert run(*proposed(out))[0] == 0
    uses = "int hipMalloc(void), ncclGetVersion(int*); int g(void){return hipMalloc() + ncclGetVersion(0);}"
    both = wheel(tmp_path / "both", uses, hip, old(tmp_path, "librccl.so.1", RCCL))
    way = ["--prefix", f"{tmp_path}/new", "--stub", "librccl.so.1"]
    assert proposed(run(both, "--prefix", prefix)[1])[1:] == way
    shared(tmp_path / "other/lib/libamdhip64.so.7", "int hipOther(void){return 0;}")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "other"))
    refused = run(*words, "--prefix", prefix)[1]
    assert "Next: a ROCm that has" in refused, "the other one lacks a symbol: a plan with it is refused"


def test_another_prefix_in_place_of_a_second_runtime(
    run: Run, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel's own search path leads to the runtime of its release, so no library is missing: two of them meet."""
    runtime, blas = "int hipMalloc(void){return 0;}", "int hipMalloc(void); int b(void){return hipMalloc();}"
    hips = {}
    for place, number in ((prefix, 6), (tmp_path / "new", 7)):
        hips[number] = shared(place / f"lib/libamdhip64.so.{number}", runtime)
        shared(place / "lib/libhipblas.so.3", blas, needed=[hips[number]], flags=["-Wl,-rpath,$ORIGIN"])
    uses = "int hipMalloc(void), b(void); int g(void){return hipMalloc() + b();}"
    needed = [hips[7], prefix / "lib/libhipblas.so.3"]
    flags = [f"-Wl,--disable-new-dtags,-rpath,{tmp_path}/new/lib", LOOSE]
    library = shared(tmp_path / "members/a.so", uses, needed=needed, flags=flags)
    made = make_wheel(tmp_path, {"demo/__init__.py": b"", "demo/a.so": library}, tag=TAG)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "new"))
    out = run(made, "--prefix", prefix)[1]
    assert "two HIP runtimes would be loaded" in out.splitlines()[0]
    assert proposed(out) == [str(made), "--prefix", f"{tmp_path}/new"]


@pytest.mark.slow(reason="several plans, and two runs")
def test_a_substitute_before_a_stub(run: Run, prefix: Path, tmp_path: Path) -> None:
    made = wheel(tmp_path, USES_RCCL, old(tmp_path, "librccl.so.1", RCCL))
    shared(prefix / "lib/librccl.so.2", RCCL)
    added, _ = tried(run, made, "--prefix", prefix, "-o", tmp_path / "out")
    assert added == ["--substitute", "librccl.so.1=librccl.so.2"]


@pytest.mark.slow(reason="several plans, and two runs")
def test_a_substitute_that_lacks_a_symbol_gives_way(run: Run, prefix: Path, tmp_path: Path) -> None:
    made = wheel(tmp_path, USES_RCCL, old(tmp_path, "librccl.so.1", RCCL))
    shared(prefix / "lib/librccl.so.2", "int ncclOther(void){return 0;}")
    added, _ = tried(run, made, "--prefix", prefix, "-o", tmp_path / "out")
    assert added == ["--stub", "librccl.so.1"]


@pytest.mark.slow(reason="several plans, and two runs")
def test_several_at_once(run: Run, prefix: Path, tmp_path: Path) -> None:
    """Of two members; what the one has forgotten shows only once the other has what it misses."""
    blas = old(tmp_path, "libmyblas.so.1", "int blas(void){return 1;}")
    shared(prefix / "lib/libmyblas.so.2", "int blas(void){return 2;}")
    source = USES_RCCL + "extern int blas(void); int h(void){return blas();}"
    first = member(tmp_path / "a.so", source, old(tmp_path, "librccl.so.1", RCCL), blas)
    second = member(tmp_path / "b.so", HIP_USER)
    made = make_wheel(tmp_path, {"demo/__init__.py": b"", "demo/a.so": first, "demo/b.so": second}, tag=TAG)
    added, _ = tried(run, made, "--prefix", prefix, "-o", tmp_path / "out")
    assert sorted(zip(added[::2], added[1::2], strict=True)) == [
        ("--preload", "libhip.so.7"),
        ("--stub", "librccl.so.1"),
        ("--substitute", "libmyblas.so.1=libmyblas.so.2"),
    ]


def test_what_no_option_brings(run: Run, prefix: Path, tmp_path: Path) -> None:
    nowhere = old(tmp_path, "libnowhere.so.1", "int nowhere(void){return 1;}")
    source = USES_RCCL + "extern int nowhere(void); int h(void){return nowhere();}"
    made = wheel(tmp_path, source, old(tmp_path, "librccl.so.1", RCCL), nowhere)
    code, out, _ = run(made, "--prefix", prefix, "-o", tmp_path / "out")
    assert code == 1
    assert "--stub" not in out.splitlines()[-1]
    assert "libnowhere.so.1" in out.splitlines()[-1]


def test_the_package_comes_first(
    works: Works, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = wheel(tmp_path, USES_RCCL, old(tmp_path, "librccl.so.1", RCCL))
    command = ("relink", str(made), "--prefix", str(prefix))
    monkeypatch.setattr("relink.planning.case.read_distribution", lambda _: Distribution("Debian", "debian"))
    monkeypatch.setattr("relink.vendors.rocm.vendor.PREFIXES", {"debian": str(prefix)})
    options = dataclasses.replace(works.options(tmp_path / "out"), prefixes=(str(prefix),), command=command)
    found = verdict(relink(made, options))
    again = shlex.join([*command, "--stub", "librccl.so.1"])
    assert (
        found.step
        == f"apt install librccl1, then the same command; or, to go on without librccl.so.1: {again}"
    )
    assert found.commands == ("apt install librccl1", again)


def test_no_other_runtime_is_proposed(run: Run, prefix: Path, tmp_path: Path) -> None:
    """Its exports say nothing of what the vendor's other libraries expect of it."""
    source = "int hipFree(void){return 7;}"
    user = "extern int hipFree(void); int g(void){return hipFree();}"
    made = wheel(tmp_path, user, old(tmp_path, "libamdhip64.so.7", source))
    shared(prefix / "lib/libamdhip64.so.6", source)
    code, out, _ = run(made, "--prefix", prefix, "-o", tmp_path / "out")
    assert code == 1
    assert "--substitute" not in out
    assert "Use a ROCm that has libamdhip64.so.7: libamdhip64.so.6 is the runtime of another release." in out


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("name", ["bitsandbytes", "demo"])
def test_a_variant_is_served_by_what_its_nearest_one_lacks(
    run: Run, prefix: Path, tmp_path: Path, name: str
) -> None:
    """Only the profile of bitsandbytes says that a package does without hipBLASLt; no other package is offered a stub of it."""
    blas = old(tmp_path, "libhipblaslt.so.0", "int hipblasLtMatmul(void){return 0;}")
    user = "extern int hipblasLtMatmul(void); int g(void){return hipblasLtMatmul();}"
    library = member(tmp_path / "libbitsandbytes_rocm64.so", user, blas)
    files: dict[str, Path | bytes] = {f"{name}/__init__.py": b"", f"{name}/{library.name}": library}
    made = make_wheel(tmp_path, files, name=name, tag=TAG)
    words = (made, "--prefix", prefix, "-o", tmp_path / "out")
    _, out, _ = run(*words)
    if name == "demo":
        assert out.splitlines()[-1] == (
            "Next: a ROCm that has libhipblaslt.so.0 (--prefix DIR), then the same command"
        )
        return
    assert "Cannot work yet: no bundled library fits your ROCm (bitsandbytes); 1 library is missing." in out
    added, out = tried(run, *words)
    assert added == ["--stub", "libhipblaslt.so.0"]
    assert "Loads; checked by ld.so" in out
    assert "only the 8-bit product of matrices" in out


@SLOW
def test_two_releases_are_two_commands(run: Run, prefix: Path, tmp_path: Path) -> None:
    """Each was tried, and each is printed: which one the file was built for, only a person can know."""
    shared(prefix / "lib/libamdhip64.so.6", "int hipFree(void){return 6;} int hiprtcVersion(void){return 6;}")
    shared(prefix / "lib/libamdhip64.so.7", "int hipFree(void){return 7;}")
    shared(prefix / "lib/libhiprtc.so.7", "int hiprtcVersion(void){return 7;}")
    source = "extern int hipFree(void), hiprtcVersion(void); int g(void){return hipFree() + hiprtcVersion();}"
    made = wheel(tmp_path, source)
    code, out, _ = run(made, "--prefix", prefix, "-o", tmp_path / "out")
    assert code == 1
    word, first, other, second = out.splitlines()[-4:]
    assert (word, other) == ("Next:", "or")
    for number, (command, added) in enumerate(
        ((first, ("libamdhip64.so.6",)), (second, ("libamdhip64.so.7", "libhiprtc.so.7")))
    ):
        words = shlex.split(command)[1:]
        assert words[-2 * len(added) :] == [word for soname in added for word in ("--preload", soname)]
        place = tmp_path / str(number)
        assert run(*words, "-o", place)[0] == 0
        with zipfile.ZipFile(next(place.glob("*.whl"))) as archive:
            assert read_image(archive.read("demo/a.so"), "a").needed[: len(added)] == added


def test_a_step_that_is_no_option_of_a_known_kind_is_not_followed(works: Works, tmp_path: Path) -> None:
    options = works.options(tmp_path / "out")
    with Contents(works.small(tmp_path)) as contents:
        planned = make_plan(contents, options, Clock())[1]

    def never(_: Options) -> PreparedPlan:
        raise AssertionError("nothing is to be planned")

    for step in ("--force", "--preload", "--preload 'a", "--trust x", "--preload a b", "apt install x"):
        wrong = finding("RLK302", "demo/a.so", "m", step=step)
        refused = replace(planned, plan=replace(planned.plan, findings=(wrong,)))
        assert find_ways_out(refused, options, never, Trace()) == ()


@pytest.mark.parametrize(
    ("problem", "kept", "refused"),
    [
        (
            "needed by bad.so.1",
            "one.so.1 two.so.1",
            {"bad": "RLK101 lost.so.1: needed by bad.so.1", "vain": "the warning stays"},
        ),
        (
            "needed by who knows",
            "one.so.1",
            {"bad": "RLK101 lost", "vain": "the warning stays", "two": "RLK101 lost"},
        ),
    ],
)
def test_options_that_do_not_help_are_left_out(
    works: Works, tmp_path: Path, problem: str, kept: str, refused: dict[str, str]
) -> None:
    """They are told by what the errors name, and by the warnings that stay; else the last one is tried no more."""
    options = works.options(tmp_path / "out")
    with Contents(works.small(tmp_path)) as contents:
        planned = make_plan(contents, options, Clock())[1]
    warnings = {
        name: finding("RLK120", f"{name}.so.1", "m", level="warning", step=f"--preload {name}.so.1")
        for name in ("one", "vain", "bad", "two")
    }
    planned = replace(planned, plan=replace(planned.plan, findings=tuple(warnings.values())))

    def replan(changed: Options) -> PreparedPlan:
        found = [
            one for name, one in warnings.items() if name == "vain" or one.subject not in changed.preload
        ]
        if "bad.so.1" in changed.preload:
            found.append(finding("RLK101", "lost.so.1", problem))
        return replace(planned, plan=replace(planned.plan, findings=tuple(found)))

    after = keep_what_helps(planned, options, replan, Trace()).plan.findings
    assert [one.subject for one in after if one.step] == kept.split()
    told = {one.subject.partition(".")[0]: one.remedy for one in after if not one.step}
    assert told.keys() == refused.keys()
    for name, why in refused.items():
        assert told[name].startswith(f"--preload {name}.so.1 is not advised: {why}")


def test_one_option_that_several_libraries_lead_to_is_tried(works: Works, tmp_path: Path) -> None:
    """Each library of a prefix of a newer glibc has the loader of the prefix as its step."""
    options = works.options(tmp_path / "out")
    with Contents(works.small(tmp_path)) as contents:
        planned = make_plan(contents, options, Clock())[1]
    step = "--interpreter /p/ld.so"
    wrong = [replace(finding("RLK301", name, "m", step=step), cause="newer") for name in ("/p/a", "/p/b")]
    # What is compared with a C library that is too old has no remedy of its own.
    wrong += [finding("RLK107", "libdl.so.2", "m"), finding("RLK302", "/p/librt.so.1", "m")]
    refused = replace(planned, plan=replace(planned.plan, findings=tuple(wrong)))

    def replan(changed: Options) -> PreparedPlan:
        return planned if changed.interpreter == "/p/ld.so" else refused

    assert find_ways_out(refused, options, replan, Trace()) == (("--interpreter", "/p/ld.so"),)


def test_a_wheel_that_needs_no_rocm_is_left_alone(works: Works, tmp_path: Path) -> None:
    """Its search path leads to the build machine, which is nobody's business here: no edit, and no new version."""
    plain = shared(tmp_path / "plain.so", "int f(void){return 1;}", flags=["-Wl,-rpath,/build/machine/lib:"])
    wheel = works.wheel(tmp_path, {"demo/__init__.py": b"", "demo/plain.so": plain})
    report = relink(wheel, works.options(tmp_path / "out"))
    assert report.ok
    assert verdict(report).text == "Needs no ROCm: left as it is."
    assert not any(file.changed for file in report.files)
    output = Path(report.path or "")
    assert (output.name, output.read_bytes()) == (wheel.name, wheel.read_bytes())


def test_a_wheel_that_opens_one_of_rocm_is_not(works: Works, tmp_path: Path) -> None:
    source = 'extern void *dlopen(const char *, int); void *f(void){return dlopen("librocblas.so", 1);}'
    member = shared(tmp_path / "opens.so", source)
    wheel = works.wheel(tmp_path, {"demo/__init__.py": b"", "demo/opens.so": member})
    report = relink(wheel, works.options(tmp_path / "out"))
    assert "RLK132" in [found.code for found in report.findings]
    assert not verdict(report).text.startswith("Needs no")


def with_own_runtime(directory: Path) -> Path:
    """A wheel with a HIP runtime that auditwheel has renamed, and that opens another library of HIP by its usual name."""
    dlopen = 'extern void *dlopen(const char *, int); void *again(void){return dlopen("libamdhip64.so", 1);}'
    hip = shared(directory / "libamdhip64-f104.so.7.2", f"int hipMalloc(void){{return 0;}} {dlopen}")
    source = "extern int hipMalloc(void); int f(void){return hipMalloc();}"
    member = shared(directory / "a.so", source, needed=[hip], flags=["-Wl,-rpath,$ORIGIN/../demo.libs"])
    files: dict[str, bytes | Path] = {
        "demo/__init__.py": b"",
        "demo/a.so": member,
        f"demo.libs/{hip.name}": hip,
    }
    return make_wheel(directory, files)


@SLOW
def test_an_option_that_brings_a_second_runtime_is_not_advised(tmp_path: Path) -> None:
    hip = shared(tmp_path / "rocm/lib/libamdhip64.so.7", "int hipMalloc(void){return 0;}")
    options = Options(prefixes=(str(hip.parents[1]),), output_directory=tmp_path / "out")
    report = relink(with_own_runtime(tmp_path), options)
    (found,) = [found for found in report.findings if found.code == "RLK132"]
    assert found.step is None
    assert found.remedy.startswith("--forward libamdhip64.so is not advised: RLK134 libamdhip64.so: ")
    refused = relink(with_own_runtime(tmp_path), dataclasses.replace(options, forward=("libamdhip64.so",)))
    assert [found.code for found in refused.findings if found.level == "error"] == ["RLK134"]


@pytest.fixture
def no_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has no ROCm."""
    monkeypatch.delenv("ROCM_PATH", raising=False)
    monkeypatch.setattr("relink.vendors.rocm.places.find_places", lambda *_: ())


def with_bundle(directory: Path) -> Path:
    """A wheel with its own HIP, which needs a library that nothing has."""
    gone = shared(
        directory / "gone/librocprofiler-register.so.0",
        "int rocprofiler_register_library_api_table(void){return 0;}",
    )
    source = "extern int rocprofiler_register_library_api_table(void);"
    hip = shared(
        directory / "libamdhip64.so.6",
        f"{source} int hipMalloc(void){{return rocprofiler_register_library_api_table();}}",
        needed=[gone],
    )
    uses = "extern int hipMalloc(void); int f(void){return hipMalloc();}"
    member = shared(directory / "a.so", uses, needed=[hip], flags=["-Wl,-rpath,$ORIGIN", LOOSE])
    return make_wheel(directory, {"demo/__init__.py": b"", "demo/a.so": member, f"demo/{hip.name}": hip})


@SLOW
@pytest.mark.usefixtures("no_rocm")
def test_a_wheel_that_brings_the_runtime_needs_no_prefix(tmp_path: Path) -> None:
    options = Options(output_directory=tmp_path / "out")
    report = relink(with_bundle(tmp_path), options)
    assert [found.code for found in report.findings if found.level == "error"] == ["RLK101"]
    assert report.way_out == ("--stub", "librocprofiler-register.so.0")
    stubbed = relink(
        with_bundle(tmp_path), dataclasses.replace(options, stub=("librocprofiler-register.so.0",))
    )
    assert stubbed.output is not None


@pytest.mark.usefixtures("no_rocm")
def test_a_wheel_that_needs_the_runtime_needs_a_prefix(works: Works, tmp_path: Path) -> None:
    plain = shared(tmp_path / "plain.so", "int f(void){return 1;}")
    other = relink(
        works.wheel(tmp_path, {"demo/plain.so": plain}), Options(output_directory=tmp_path / "out")
    )
    assert verdict(other).text == "Needs no ROCm: left as it is."
    hip = shared(tmp_path / "libamdhip64.so.7", "int hipMalloc(void){return 0;}")
    uses = "extern int hipMalloc(void); int f(void){return hipMalloc();}"
    wheel = works.wheel(tmp_path / "w", {"demo/a.so": shared(tmp_path / "a.so", uses, needed=[hip])})
    with pytest.raises(UsageError, match="no ROCm: name one"):
        relink(wheel, Options(output_directory=tmp_path / "out"))


@pytest.mark.usefixtures("no_rocm")
def test_code_that_the_wheel_lacks_comes_before_a_rocm(works: Works, tmp_path: Path) -> None:
    hip = shared(tmp_path / "libamdhip64.so.7", "int hipMalloc(void){return 0;}")
    uses = "extern int hipMalloc(void); int f(void){return hipMalloc();}\n" + device_code(("gfx1030",))
    wheel = works.wheel(tmp_path / "w", {"demo/a.so": shared(tmp_path / "a.so", uses, needed=[hip])})
    for lacking in (Options(gpus=("gfx1031",)), Options(only_gpus=("gfx1031",))):
        options = dataclasses.replace(lacking, output_directory=tmp_path / "out")
        report = relink(wheel, options)
        assert [found.code for found in report.findings if found.level == "error"] == ["RLK401"]
        assert "no code for this GPU (gfx1031): HSA_OVERRIDE_GFX_VERSION=10.3.0" in verdict(report).text
        with pytest.raises(UsageError, match="no ROCm: name one"):
            relink(wheel, dataclasses.replace(options, force=True))
    with pytest.raises(UsageError, match="no ROCm: name one"):
        relink(wheel, Options(gpus=("gfx1030",)))


def test_an_option_that_was_seen_to_help_is_advised(works: Works, tmp_path: Path) -> None:
    source = 'extern void *dlopen(const char *, int); void *f(void){return dlopen("librocblas.so", 1);}'
    blas = shared(tmp_path / "rocm/lib/librocblas.so.5", "int blas(void){return 0;}")
    wheel = works.wheel(tmp_path, {"demo/opens.so": shared(tmp_path / "opens.so", source)})
    options = Options(prefixes=(str(blas.parents[1]),), output_directory=tmp_path / "out")
    (found,) = [found for found in relink(wheel, options).findings if found.code == "RLK132"]
    assert found.step == "--forward librocblas.so"
    report = relink(wheel, dataclasses.replace(options, forward=("librocblas.so",)))
    assert "RLK132" not in [found.code for found in report.findings]


@SLOW
def test_a_name_that_one_member_has_and_another_opens(tmp_path: Path) -> None:
    """As in hip-python. The loader looks where the member looks that calls dlopen, so that one gets the search path."""
    hip = shared(tmp_path / "rocm/lib/libamdhip64.so.7", "int hipMalloc(void){return 0;}")
    opener = shared(
        tmp_path / "loader.so",
        "extern void *dlopen(const char *, int); void *open_library(const char *name){return dlopen(name, 2);}",
    )
    source = 'extern void *open_library(const char *); int first(void){return open_library("libamdhip64.so") != 0;}'
    names = shared(tmp_path / "chip.so", source, needed=[opener], flags=["-Wl,-rpath,$ORIGIN"])
    wheel = make_wheel(tmp_path, {"demo/__init__.py": b"", "demo/loader.so": opener, "demo/chip.so": names})
    options = Options(prefixes=(str(hip.parents[1]),), output_directory=tmp_path / "out")
    report = relink(wheel, options)
    (found,) = [found for found in report.findings if found.code == "RLK132"]
    assert (found.subject, found.step) == ("libamdhip64.so", "--forward libamdhip64.so")
    forwarded = relink(wheel, dataclasses.replace(options, forward=("libamdhip64.so",)))
    assert [file.path for file in forwarded.files if file.changed] == ["demo/loader.so"]


def test_a_library_that_python_code_opens_and_no_prefix_has(works: Works, tmp_path: Path) -> None:
    code = b"import ctypes\nctypes.CDLL('libamd_smi.so')\nctypes.CDLL('libm.so.6')\n"
    report = relink(works.wheel(tmp_path, {"demo/__init__.py": code}), works.options(tmp_path / "out"))
    (found,) = [found for found in report.findings if found.code == "RLK538"]
    assert found.message == "loads libamd_smi.so by name, which no prefix has"


CORE = Reliance("rocm-sdk-core", "7.2.4", ("_rocm_sdk_core/lib",))


def test_an_extra_and_a_requirement() -> None:
    assert list_metadata_lines([CORE], "rocm") == (
        "Provides-Extra: rocm",
        'Requires-Dist: rocm-sdk-core==7.2.*; extra == "rocm"',
    )
    assert list_metadata_lines([CORE], None) == ("Requires-Dist: rocm-sdk-core==7.2.*",)
    assert list_metadata_lines([], None) == ()
    several = [CORE, Reliance("rocm-sdk-libraries", "7.2.4", ("x",))]
    bundle = {"rocm-sdk-core": "rocm[libraries]", "rocm-sdk-libraries": "rocm[libraries]"}
    assert list_metadata_lines(several, None, bundle) == ("Requires-Dist: rocm[libraries]==7.2.*",)


@pytest.mark.parametrize(
    ("made_with", "fits", "too_far"),
    [
        ("7.2.4", ["7.2.0", "7.2.4", "7.2.9"], ["7.3.0", "7.1.9"]),
        (
            "7.10.0a20251120",
            ["7.10.0a20251120", "7.10.0", "7.10.1"],
            ["7.10.0a20251119", "7.11.0a1", "7.11.0"],
        ),
        ("7.2.4+vendor.1", ["7.2.4+vendor.2", "7.2.0"], ["7.3"]),
    ],
)
def test_which_versions_a_result_takes(made_with: str, fits: list[str], too_far: list[str]) -> None:
    (line,) = list_metadata_lines([Reliance("rocm-sdk-core", made_with)], None)
    wanted = Requirement(line.removeprefix("Requires-Dist: ")).specifier
    assert [wanted.contains(item) for item in fits] == [True] * len(fits)
    assert not any(wanted.contains(item) for item in too_far)


@pytest.mark.parametrize("version", ["unknown", "9" * 5000])
def test_a_version_that_is_none(version: str) -> None:
    assert list_metadata_lines([Reliance("x", version)], None) == ("Requires-Dist: x",)
