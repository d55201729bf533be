"""planning.wheel_plan: what has nothing to do with the vendor is left alone; other modules test the rest of the plan."""

from __future__ import annotations

from pathlib import Path

from relink.library import relink
from relink.report.summary import verdict
from tests.support.cc import shared
from tests.support.works import Works


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
