"""Processes of an environment: each case as a package of stand-ins, and what a real Python does with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.elf.image import read_image
from relink.loader.seen_files import Files
from relink.loader.target import find_target
from relink.planning.processes import (
    DistributionFiles,
    EnvironmentProcesses,
    ImportOutcome,
    find_part_alone,
    top_modules,
)
from relink.python.facts_cache import FactsCache
from relink.python.process import PlannedFiles
from tests.support.cc import shared, shared_without
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library, build
from tests.support.python_processes import python_of

SLOW = pytest.mark.slow(reason="a Python for each way; the other tests of processes have one")

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

OPEN = "import ctypes, os\nHERE = os.path.dirname(os.path.abspath(__file__))\n"


def opens(name: str) -> str:
    """A line that opens a library beside the module."""
    return f"ctypes.CDLL(os.path.join(HERE, {name!r}))\n"


class Site:
    """A directory of packages, and what an import of one does there: as predicted, and in a real process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, source: str) -> None:
        """Write a module by its path."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)

    def outcome(
        self,
        name: str,
        variables: Mapping[str, str] | None = None,
        gpu: tuple[str, ...] = (),
        preload: tuple[str, ...] = (),
        planned: PlannedFiles | None = None,
    ) -> ImportOutcome:
        """Follow the import of a package that has the files of its directory, and of NAME.libs."""
        target = find_target(python=sys.executable)
        assert target.python_facts
        python = replace(target.python_facts, site_packages=(str(self.path),))
        processes = EnvironmentProcesses(
            target, python, Files("/"), variables or {}, FactsCache(None), planned=planned
        )
        own = (self.path / name, self.path / f"{name}.libs")
        files = [file for directory in own for file in directory.rglob("*") if file.is_file()]
        members = {str(file.relative_to(self.path)): file for file in files}
        images = {
            member: read_image(file.read_bytes(), member)
            for member, file in members.items()
            if ".so" in member
        }
        return processes.follow(
            DistributionFiles(str(self.path), name, members, images, gpu=gpu, preload=preload)
        )

    def imports(self, name: str, variables: Mapping[str, str] | None = None) -> bool:
        """Whether a real Python imports it."""
        command = [sys.executable, "-c", f"import site; site.addsitedir({str(self.path)!r}); import {name}"]
        return (
            subprocess.run(
                command, check=False, env={**os.environ, **(variables or {})}, capture_output=True
            ).returncode
            == 0
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site-packages")


def said(outcome: ImportOutcome, site: Site) -> list[str]:
    """Level, code and subject of each finding."""
    return [f"{found.level} {found.code} {found.subject}" for found in outcome.findings(str(site.path))]


def test_a_carried_library_is_judged_where_it_is_loaded(site: Site) -> None:
    """It has no search path; DT_RPATH of what the import opens serves it."""
    libs = site.path / "num.libs"
    deep = shared(libs / "libquad.so.0", "int quad(void){return 1;}")
    fortran = shared(
        libs / "libfort.so.5", "extern int quad(void); int fort(void){return quad();}", needed=[deep]
    )
    old = ["-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/../num.libs"]
    shared(
        site.path / "num/core.so",
        "extern int fort(void); int c(void){return fort();}",
        needed=[fortran],
        flags=old,
    )
    site.write("num/__init__.py", OPEN + opens("core.so"))
    outcome = site.outcome("num")
    assert site.imports("num")
    assert said(outcome, site) == []
    assert outcome.parts == {
        "num/core.so": "import",
        "num.libs/libquad.so.0": "carried",
        "num.libs/libfort.so.5": "carried",
    }


def lost_extension(site: Site, name: str) -> None:
    """Make a library that needs one which is nowhere."""
    shared_without(site.path / name, "libtbb.so.12")


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("pth", ["import hook\n", "# import hook\n"])
def test_a_library_that_a_pth_file_has_mapped_serves_all_imports(site: Site, pth: str) -> None:
    """As pip_system_certs.pth, which imports ssl before a package that brings another libssl."""
    shared(site.path / "libdep.so.1", "int older(void){return 1;}")
    own = shared(site.path / "user/libdep.so.1", "int newer(void){return 1;}")
    source = "extern int newer(void); int c(void){return newer();}"
    shared(site.path / "user/core.so", source, needed=[own], flags=["-Wl,-rpath,$ORIGIN", "-Wl,-z,now"])
    site.write("hook.pth", pth)
    site.write("hook.py", OPEN + opens("libdep.so.1"))
    site.write("user/__init__.py", OPEN + opens("core.so"))
    broken = pth.startswith("import")
    assert site.imports("user") is not broken
    outcome = site.outcome("user")
    assert said(outcome, site) == ([f"error RLK302 {site.path}/user/core.so"] if broken else [])


def test_what_is_guarded_fails(site: Site) -> None:
    lost_extension(site, "work/pool.so")
    site.write("work/__init__.py", f"{OPEN}try:\n    {opens('pool.so')}except OSError:\n    pass\n")
    outcome = site.outcome("work")
    assert site.imports("work")
    assert outcome.parts == {"work/pool.so": "guarded"}
    (found,) = outcome.findings(str(site.path))
    assert (found.level, found.code, found.without) == ("warning", "RLK124", "pool.so (libtbb.so.12)")


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize(
    ("handler", "ends"),
    [
        ("raise", True),
        ("raise ImportError('no backend')", True),
        ("import absent_backend", True),
        ("ctypes.CDLL(os.path.join(HERE, 'other.so'))", True),
        ("try:\n        import absent_backend\n    except ImportError:\n        raise first from None", True),
        ("try:\n        import absent_backend\n    except ImportError:\n        pass", False),
        ("ctypes.CDLL(os.path.join(HERE, 'there.so'))", False),
    ],
)
def test_every_way_of_a_guarded_import_fails(site: Site, handler: str, ends: bool) -> None:
    """Which library the import lacks is told by the first of them."""
    lost_extension(site, "work/pool.so")
    lost_extension(site, "work/other.so")
    shared(site.path / "work/there.so", "int there(void){return 1;}")
    opening = f"try:\n    try:\n        {opens('pool.so')}    except ValueError:\n        pass\n"
    site.write("work/__init__.py", f"{OPEN}{opening}except OSError as first:\n    {handler}\n")
    outcome = site.outcome("work")
    assert site.imports("work") is not ends
    errors = [found for found in outcome.findings(str(site.path)) if found.level == "error"]
    assert [(found.code, found.subject) for found in errors][:1] == [("RLK101", "libtbb.so.12")] * ends
    assert outcome.stopped is None


def test_a_guard_holds_for_what_follows_only_if_it_succeeds(site: Site) -> None:
    """As thinc imports cupy: what is imported again past the guard is not reached where the guard has failed."""
    lost_extension(site, "work/pool.so")
    site.write("work/gpu.py", OPEN + opens("pool.so"))
    guard = "try:\n    import work.gpu as gpu\nexcept OSError:\n    gpu = None\n"
    site.write("work/__init__.py", f"{guard}if gpu:\n    from . import gpu as again\n")
    assert site.imports("work")
    assert [found.level for found in site.outcome("work").findings(str(site.path))] == ["warning"]


def test_what_is_not_guarded_ends_the_import(site: Site) -> None:
    lost_extension(site, "work/pool.so")
    site.write("work/__init__.py", OPEN + opens("pool.so"))
    assert not site.imports("work")
    (found,) = site.outcome("work").findings(str(site.path))
    assert (found.level, found.code, found.subject) == ("error", "RLK101", "libtbb.so.12")
    assert "work/__init__.py:3 opens work/pool.so" in found.message


def test_an_extension_that_nobody_imports(site: Site) -> None:
    """It is imported by its name, or never: the package works without it."""
    suffix = find_target(python=sys.executable).python_facts.suffixes[0]  # type: ignore[union-attr]
    lost_extension(site, f"work/sub/pool{suffix}")
    lost_extension(site, "work/sub/pool.cpython-27-x86_64-linux-gnu.so")
    lost_extension(site, "work/sub/plugin.so")
    site.write("work/__init__.py", "")
    outcome = site.outcome("work")
    assert [found.without for found in outcome.findings(str(site.path))] == ["work.sub.pool (libtbb.so.12)"]
    assert outcome.parts == {
        f"work/sub/pool{suffix}": "later",
        "work/sub/pool.cpython-27-x86_64-linux-gnu.so": "foreign",
        "work/sub/plugin.so": "unknown",
    }


@pytest.mark.parametrize("name", ["plugin.so", "libplugin.so.1"])
def test_a_symbol_that_nothing_has(site: Site, name: str) -> None:
    """Nobody is known to open the file; that it cannot be opened is told."""
    shared(site.path / "work" / name, "extern int nowhere(void); int c(void){return nowhere();}")
    site.write("work/__init__.py", "")
    (found,) = site.outcome("work").findings(str(site.path))
    assert (found.code, found.level) == ("RLK124", "warning")
    assert f"{name} imports nowhere, which nothing there has" in found.message


@pytest.mark.parametrize("user", ["pool{}", "libpool.so"])
def test_a_library_that_relies_on_what_its_user_needs(site: Site, user: str) -> None:
    """Alone it cannot be opened; whoever is opened later and needs it needs the other, too."""
    libs = site.path / "work.libs"
    base = shared(libs / "libbase.so.1", "int base(void){return 1;}")
    upper = shared(libs / "libupper.so.1", "extern int base(void); int upper(void){return base();}")
    suffix = find_target(python=sys.executable).python_facts.suffixes[0]  # type: ignore[union-attr]
    source = "extern int upper(void); int p(void){return upper();}"
    flags = ["-Wl,-rpath,$ORIGIN/../../work.libs"]
    shared(site.path / "work/sub" / user.format(suffix), source, needed=[upper, base], flags=flags)
    site.write("work/__init__.py", "")
    assert said(site.outcome("work"), site) == []


def test_tests_beside_a_module_are_not_imported(tmp_path: Path) -> None:
    assert top_modules("libsass", ["sass.py", "sasstests.py"], python_of(tmp_path)) == ["sass"]
    assert top_modules("own-tests", ["sasstests.py"], python_of(tmp_path)) == ["sasstests"]


@pytest.mark.parametrize("entry", ["PyInit_core", "other"])
def test_a_library_that_is_no_module(site: Site, entry: str) -> None:
    """The loader takes it. Of a file with section headers it is known that it has not the function that Python calls."""
    source = f"extern void *PyModuleDef_Init(void *); static char d[200]; void *{entry}(void) {{ return PyModuleDef_Init(d); }}"
    shared(site.path / "work/core.so", source)
    site.write("work/__init__.py", "from . import core\n")
    failures = ["error RLK116 work/core.so"] if entry == "other" else []
    assert [one.replace(f"{site.path}/", "") for one in said(site.outcome("work"), site)] == failures
    assert not site.imports("work") or entry != "other"


@pytest.mark.parametrize(
    ("asks", "works"),
    [
        ("lib.there.restype = None", True),
        ("lib.nowhere.restype = None", False),
        ("getattr(lib, 'nowhere')", False),
        ("lib['nowhere']", False),
        ("getattr(lib, 'nowhere', None)", True),
        ("if hasattr(lib, 'nowhere'):\n    lib.absent", True),
        ("try:\n    lib.nowhere\nexcept AttributeError:\n    pass", True),
        ("lib.below", True),
        ("lib._handle", True),
        ("lib.nowhere = 1\nlib.nowhere", True),
        ("ctypes.c_int.in_dll(lib, 'there')", True),
        ("ctypes.c_int.in_dll(lib, 'nowhere')", False),
        ("try:\n    ctypes.c_void_p.in_dll(lib, 'nowhere')\nexcept ValueError:\n    pass", True),
        ("try:\n    ctypes.c_void_p.in_dll(lib, 'nowhere')\nexcept AttributeError:\n    pass", False),
        ("ctypes.CFUNCTYPE(ctypes.c_int)(('below', lib))", True),
        ("ctypes.CFUNCTYPE(ctypes.c_int)(('nowhere', lib))", False),
        ("ctypes.CFUNCTYPE(None)(print)", True),
    ],
)
def test_a_symbol_that_a_source_asks_for(site: Site, asks: str, works: bool) -> None:
    """dlsym looks into the library, and into what that needs."""
    below = shared(site.path / "work/libbelow.so.1", "int below(void){return 1;}")
    source = "extern int below(void); int there(void){return below();}"
    shared(site.path / "work/c.so", source, needed=[below], flags=["-Wl,-rpath,$ORIGIN"])
    site.write("work/__init__.py", f"{OPEN}lib = {opens('c.so')}{asks}\n")
    assert site.imports("work") == works
    errors = [found for found in site.outcome("work").findings(str(site.path)) if found.level == "error"]
    assert [(found.code, found.subject) for found in errors] == (
        [] if works else [("RLK116", f"{site.path}/work/c.so")]
    )
    assert works or "c.so has no nowhere" in errors[0].message


def test_an_entry_of_another_name(site: Site) -> None:
    source = "extern void *PyModuleDef_Init(void *); static char d[200]; void *PyInit_other(void) { return PyModuleDef_Init(d); }"
    shared(site.path / "work/core.so", source)
    site.write("work/__init__.py", "from . import core\n")
    assert not site.imports("work")
    assert said(site.outcome("work"), site) == [f"error RLK116 {site.path}/work/core.so"]
    (found,) = site.outcome("work").findings(str(site.path))
    assert found.message == "core.so has no PyInit_core; work/__init__.py:1 imports it"


@pytest.mark.parametrize(
    ("source", "unsure", "stopped"),
    [
        ("import os\nif os.getpid() % 2:\n    from . import core\n", True, False),
        (
            "import os\ntry:\n    if os.getpid() % 2:\n        from . import core\nexcept ImportError:\n    pass\n",
            False,
            False,
        ),
        ("import ctypes, os\nctypes.CDLL(os.read(0, 9))\n", True, True),
        ("def f(:\n", True, True),
        ("", False, False),
    ],
)
def test_what_cannot_be_read(site: Site, source: str, unsure: bool, stopped: bool) -> None:
    lost_extension(site, "work/core.so")
    site.write("work/__init__.py", source)
    outcome = site.outcome("work")
    assert (outcome.unsure is not None, outcome.stopped is not None) == (unsure, stopped)


def test_a_branch_for_another_release_of_this_python(site: Site) -> None:
    major, minor, micro = sys.version_info[:3]
    site.write(
        "work/__init__.py", f"import sys\nif sys.version_info < {(major, minor, micro)}:\n    import absent\n"
    )
    site.write(
        "next/__init__.py",
        f"import sys\nif sys.version_info <= {(major, minor, micro)}:\n    import absent\n",
    )
    assert site.outcome("work").stopped is None
    assert (site.outcome("next").stopped is None) == site.imports("next")


def test_static_tls_without_room(site: Site) -> None:
    source = "__thread char block[65536]; char *c(void) { return block; }"
    shared(site.path / "work/c.so", source, flags=["-ftls-model=initial-exec"])
    site.write("work/__init__.py", OPEN + opens("c.so"))
    assert not site.imports("work")
    assert said(site.outcome("work"), site) == [f"error RLK116 {site.path}/work/c.so"]


def make_host(site: Site) -> Path:
    """Make a package whose import maps a library that no search path of others leads to."""
    library = shared(site.path / "torch/lib/libhost.so", "int host(void){return 1;}")
    site.write("torch/__init__.py", OPEN + opens("lib/libhost.so"))
    return library


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize(
    ("source", "works"),
    [
        ("import torch\n", True),
        ("import sys\nif sys.version_info < (3, 0):\n    pass\nelse:\n    import torch\n", True),
        ("", False),
    ],
)
def test_what_another_package_has_mapped_before(site: Site, source: str, works: bool) -> None:
    library = make_host(site)
    shared(site.path / "ext/c.so", "extern int host(void); int c(void){return host();}", needed=[library])
    site.write("ext/__init__.py", source + OPEN + opens("c.so"))
    assert site.imports("ext") == works
    assert said(site.outcome("ext"), site) == ([] if works else ["error RLK101 libhost.so"])


def test_a_symbol_that_the_host_has_not(site: Site) -> None:
    """All of torch's libraries are mapped, and none has it."""
    library = make_host(site)
    source = "extern int host(void), newer(void); int (*p)(void) = newer; int c(void){return host();}"
    shared(site.path / "ext/c.so", source, needed=[library], flags=["-Wl,--unresolved-symbols=ignore-all"])
    site.write("ext/__init__.py", "import torch\n" + OPEN + opens("c.so"))
    assert not site.imports("ext")
    assert said(site.outcome("ext"), site) == [f"error RLK302 {site.path}/ext/c.so"]


def test_a_library_that_ctypes_opens_by_name(site: Site) -> None:
    site.write("smi/__init__.py", 'import ctypes\nctypes.CDLL("librelink_nowhere_smi.so")\n')
    assert not site.imports("smi")
    assert said(site.outcome("smi"), site) == ["error RLK101 librelink_nowhere_smi.so"]


def test_a_name_that_is_opened_in_a_try(site: Site) -> None:
    source = 'import ctypes\ntry:\n    ctypes.CDLL("librelink_nowhere_smi.so")\nexcept OSError:\n    pass\n'
    site.write("smi/__init__.py", source)
    assert site.imports("smi")
    assert said(site.outcome("smi"), site) == ["warning RLK124 librelink_nowhere_smi.so"]


def test_a_sibling_opens_what_is_beside_it(site: Site) -> None:
    """The module beside it has the name, and the function that opens it is called by the import."""
    site.write("hip/_util.py", "import ctypes\ndef load(name):\n    return ctypes.CDLL(name)\n")
    site.write("hip/__init__.py", 'from hip._util import load\nload("librelink_nowhere_hip.so")\n')
    assert not site.imports("hip")
    assert said(site.outcome("hip"), site) == ["error RLK101 librelink_nowhere_hip.so"]


def test_a_plugin_beside_its_host(site: Site) -> None:
    host = shared(site.path / "mm.libs/lib/libHost.so", "int host(void){return 1;}")
    plugin = site.path / "mm.libs/lib/plugins/libPlugin.so"
    shared(plugin, "extern int host(void); int p(void){return host();}", needed=[host])
    load = "ctypes.CDLL(os.path.join(HERE, '../mm.libs/lib', {!r}))\n"
    site.write("mm/__init__.py", OPEN + load.format("libHost.so") + load.format("plugins/libPlugin.so"))
    assert site.imports("mm")
    outcome = site.outcome("mm")
    assert said(outcome, site) == []
    # The path is not spelled as the member's.
    assert outcome.parts["mm.libs/lib/plugins/libPlugin.so"] in ("import", "carried")


@SLOW
def test_the_shells_directories_beat_runpath(site: Site) -> None:
    own = shared(site.path / "pkg/libdep.so.1", "int dep(void){return 1;} int old(void){return 1;}")
    shared(site.path.parent / "other/libdep.so.1", "int old(void){return 1;}")
    here = ["-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN"]
    source = "extern int dep(void), old(void); int (*p)(void) = dep; int (*q)(void) = old;"
    shared(site.path / "pkg/c.so", source, needed=[own], flags=here)
    site.write("pkg/__init__.py", OPEN + opens("c.so"))
    assert said(site.outcome("pkg"), site) == []
    variables = {"LD_LIBRARY_PATH": str(site.path.parent / "other")}
    assert not site.imports("pkg", variables)
    (found,) = site.outcome("pkg", variables).findings(str(site.path))
    assert found.code == "RLK302"
    assert "without LD_LIBRARY_PATH (libdep.so.1) it is found" in found.message


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("", "libdep.so.1 has nothing that it imports"),
        ("V_1 { dep; };", "libdep.so.1 should have it"),
    ],
)
def test_the_library_that_should_have_a_symbol(site: Site, script: str, told: str) -> None:
    """Its name is in the record of the version; without one nothing else of it is used."""
    (versions := site.path.parent / "versions").write_text(script)
    flags = [f"-Wl,--version-script={versions}"] if script else []
    libs = site.path / "pkg"
    own = shared(libs / "libdep.so.1", "int dep(void){return 1;}", flags=flags)
    more = shared(libs / "libmore.so.1", "int more(void){return 1;}")
    source = "extern int dep(void), more(void); int (*p)(void) = dep; int (*q)(void) = more;"
    shared(libs / "c.so", source, needed=[own, more], flags=["-Wl,-rpath,$ORIGIN"])
    shared(own, "")
    site.write("pkg/__init__.py", OPEN + opens("c.so"))
    assert not site.imports("pkg")
    (found,) = site.outcome("pkg").findings(str(site.path))
    assert f"c.so imports dep, which nothing there has; {told}" in found.message


def test_two_copies_of_one_soname(site: Site) -> None:
    """The second package takes what the first one has mapped; alone it would not load."""
    for name, exports in (("first", "one"), ("second", "two")):
        library = shared(site.path / f"{name}/lib/libsame.so.1", f"int {exports}(void){{return 1;}}")
        here = ["-Wl,-rpath,$ORIGIN/lib"]
        source = f"extern int {exports}(void); int (*p)(void) = {exports};"
        shared(site.path / f"{name}/c.so", source, needed=[library], flags=here)
    site.write("first/__init__.py", OPEN + opens("c.so"))
    site.write("second/__init__.py", "import first\n" + OPEN + opens("c.so"))
    assert (site.imports("first"), site.imports("second")) == (True, False)
    assert said(site.outcome("second"), site) == [f"error RLK302 {site.path}/second/c.so"]


def test_a_module_that_is_not_installed(site: Site) -> None:
    lost_extension(site, "work/pool.so")
    site.write("work/__init__.py", "import relink_nowhere\n" + OPEN + opens("pool.so"))
    outcome = site.outcome("work", gpu=("work/pool.so",))
    assert outcome.stopped == "ModuleNotFoundError: No module named 'relink_nowhere'"
    assert not outcome.failed


def test_a_required_module_that_a_handler_imports(site: Site) -> None:
    """What the wheel requires counts as there in the handler of a library that does not load, too."""
    lost_extension(site, "work/pool.so")
    source = f"{OPEN}try:\n    {opens('pool.so')}except OSError:\n    import absent_backend\n"
    site.write("work/__init__.py", source)
    outcome = site.outcome("work", planned=PlannedFiles(required=frozenset({"absent-backend"})))
    assert outcome.assumed == {"absent_backend"}
    assert (outcome.stopped, outcome.failed) == (None, ())


def test_the_gpu_part_is_never_optional(site: Site) -> None:
    lost_extension(site, "work/pool.so")
    site.write("work/__init__.py", "")
    outcome = site.outcome("work", gpu=("work/pool.so",))
    assert outcome.parts == {"work/pool.so": "GPU"}
    assert said(outcome, site) == ["error RLK101 libtbb.so.12"]


def test_what_the_profile_preloads_serves_what_is_opened_later(site: Site) -> None:
    """A library of C opens both, which no source shows: the second takes the symbols of the first from the global scope."""
    shared(site.path / "work/host.so", "int host(void){return 1;}")
    shared(site.path / "work/provider.so", "extern int host(void); int p(void){return host();}")
    site.write("work/__init__.py", "")
    files = ("work/provider.so",)
    alone = site.outcome("work", gpu=files)
    assert said(alone, site) == [f"error RLK302 {site.path}/work/provider.so"]
    assert said(site.outcome("work", gpu=files, preload=("work/host.so",)), site) == []


@pytest.mark.parametrize(
    ("path", "library", "machine", "part"),
    [
        ("package/unknown.so.2", Library("unknown.so.2", ()), 62, "unknown"),
        ("package/core.cpython-311-x86_64-linux-gnu.so", Library(None, ()), 62, "unknown"),
        ("package/old.cpython-27m-x86_64-linux-gnu.so", Library(None, ()), 62, "foreign"),
        ("package/include/part.so", Library(None, ()), 62, "foreign"),
        ("package/libpybind11core_3.8.so", Library(None, ()), 62, "foreign"),
        ("package/libpybind11core_3.11.so", Library(None, ()), 62, "unknown"),
        ("package/libcore_3.8.so", Library(None, ()), 62, "unknown"),
        ("package/bin/run", Library(None, (), interpreter="/lib64/ld-linux-x86-64.so.2"), 62, "program"),
        ("package/other_machine.so", Library(None, ()), 183, "foreign"),
    ],
)
def test_a_file_alone_has_a_part(
    tmp_path: Path, path: str, library: Library, machine: int, part: str
) -> None:
    image = read_image(build(library), path)
    assert find_part_alone(path, image, python_of(tmp_path), machine) == part


LATE = "import importlib.machinery, importlib.util, sys\n" + OPEN


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize(
    "source",
    [
        """
def path(name):
    loader = (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES)
    spec = importlib.machinery.FileFinder(HERE, loader).find_spec(name)
    if spec is None:
        raise ImportError(name)
    return spec.origin
ctypes.CDLL(path('libcore'))
""",
        """
spec = importlib.util.spec_from_file_location('libcore', os.path.join(HERE, 'libcore.so'))
importlib.util.module_from_spec(spec)
""",
        """
def load():
    for name in ('libcore.so',):
        try:
            return ctypes.CDLL(os.path.join(HERE, name))
        except OSError as error:
            last = error
    raise ImportError('none of them') from last
load()
""",
        """
found = {}
try:
    found['core'] = ctypes.CDLL(os.path.join(HERE, 'libcore.so'))
except OSError:
    print('it is not here')
start = found['core'].start
""",
        """
loader = importlib.machinery.ExtensionFileLoader('libcore', os.path.join(HERE, 'libcore.so'))
importlib.util.module_from_spec(importlib.util.spec_from_loader('libcore', loader))
""",
        """
import functools, platform
load = functools.partial(ctypes.CDLL, mode=ctypes.RTLD_GLOBAL)
if platform.uname().system == os.uname()[0] == 'Linux' and platform.architecture()[0] == '64bit':
    load(os.path.join(HERE, 'libcore.so' if sys.maxsize > 2**32 and 1 << 3 == 8 else 'none.so'))
""",
        """
works = True
try:
    ctypes.CDLL(os.path.join(HERE, 'libcore.so'))
except OSError:
    works = False
if not works:
    raise RuntimeError('it is not here')
""",
        """
for name in ('libcore.so',):
    try:
        ctypes.CDLL(os.path.join(HERE, name))
        break
    except OSError:
        pass
else:
    raise ImportError('none of them')
""",
    ],
    ids=[
        "finder",
        "spec",
        "every one fails",
        "what is not there is taken",
        "loader",
        "tests",
        "noted",
        "else",
    ],
)
def test_ways_to_open_a_library_that_fails(site: Site, source: str) -> None:
    """As torchcodec, sglang-kernel and amdsmi have them."""
    lost_extension(site, "work/libcore.so")
    site.write("work/__init__.py", LATE + source)
    assert not site.imports("work")
    assert [found.level for found in site.outcome("work").findings(str(site.path))] == ["error"]


@SLOW
def test_what_follows_a_dlopen_that_failed_may_be_caught(site: Site) -> None:
    lost_extension(site, "work/libcore.so")
    source = "def load():\n    try:\n        ctypes.CDLL(os.path.join(HERE, 'libcore.so'))\n    except OSError as error:\n"
    source += "        last = error\n    raise last\ntry:\n    load()\nexcept OSError:\n    pass\n"
    site.write("work/__init__.py", LATE + source)
    assert [found.level for found in site.outcome("work").findings(str(site.path))] == ["warning"]


@SLOW
def test_what_only_a_success_leads_to(site: Site) -> None:
    lost_extension(site, "work/libcore.so")
    source = f"try:\n    {opens('libcore.so')}except OSError:\n    pass\nelse:\n    {opens('none.so')}"
    site.write("work/__init__.py", LATE + source)
    assert site.imports("work")
    assert [found.level for found in site.outcome("work").findings(str(site.path))] == ["warning"]


@SLOW
@pytest.mark.parametrize(
    "source",
    [
        "from cuda.pathfinder import load_nvidia_dynamic_lib\nload_nvidia_dynamic_lib('rtc')\n",
        """
import json
from importlib.metadata import distribution
from pathlib import Path
for wanted in json.loads((Path(__file__).parent / 'preload.json').read_text())['libraries']:
    for file in distribution(wanted['package']).files:
        if file.name == wanted['library']:
            path = str(file.locate())
            break
    else:
        raise FileNotFoundError(wanted)
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
""",
    ],
    ids=["pathfinder", "metadata"],
)
def test_ways_to_open_a_library_of_another_package(site: Site, source: str) -> None:
    """As pylibcudf and faiss have them."""
    library = shared(site.path / "nvidia/cuda_rtc/lib/librtc.so.12", "int rtc(void){return 1;}")
    shared(site.path / "work/c.so", "int c;", needed=[library])
    loader = "cuda/pathfinder/_dynamic_libs/load_nvidia_dynamic_lib.py"
    site.write(
        loader, "import ctypes, os\ndef load_nvidia_dynamic_lib(libname):\n    ctypes.CDLL(eval('NAME'))\n"
    )
    site.write(loader, (site.path / loader).read_text().replace("NAME", repr(str(library))[1:-1].join('""')))
    site.write(
        "cuda/pathfinder/__init__.py",
        f"from {loader[:-3].replace('/', '.')} import load_nvidia_dynamic_lib\n",
    )
    site.write("rtc_cu12-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: rtc-cu12\nVersion: 1.0\n")
    site.write("rtc_cu12-1.0.dist-info/RECORD", "nvidia/cuda_rtc/lib/librtc.so.12,,\nnvidia/__init__.py,,\n")
    site.write("work/preload.json", '{"libraries": [{"package": "rtc-cu12", "library": "librtc.so.12"}]}')
    site.write("work/__init__.py", OPEN + source + opens("c.so"))
    assert site.imports("work")
    assert said(site.outcome("work"), site) == []


@SLOW
def test_a_package_that_takes_the_search_path_of_another(site: Site) -> None:
    """As cuda.core, which has its modules twice, in a wheel for two versions of CUDA."""
    source = "import importlib\n"
    source += (
        "globals().update(importlib.import_module('.cu12', __package__).__dict__)\nfrom work._core import x\n"
    )
    site.write("work/__init__.py", source)
    site.write("work/cu12/__init__.py", "")
    site.write("work/cu12/_core.py", "x = 1\n")
    assert site.imports("work")
    assert site.outcome("work").stopped is None


def test_a_directory_whose_name_is_not_known_is_in_sys_path(site: Site) -> None:
    """As another package has it, and setuptools then adds its own."""
    source = OPEN + "import sys\nsys.path.insert(0, os.urandom(4).hex())\n"
    source += "sys.path.extend(((vendor := os.path.join(HERE, 'vendor')) not in sys.path) * [vendor])\nimport inner\n"
    site.write("work/__init__.py", source)
    site.write("work/vendor/inner.py", "")
    assert site.imports("work")
    assert site.outcome("work").stopped is None


@SLOW
def test_a_package_that_is_imported_by_its_spec(site: Site) -> None:
    """As lazy loaders of cupy have it."""
    source = "import importlib.util\nspec = importlib.util.find_spec('inner')\n"
    source += "spec.loader.exec_module(importlib.util.module_from_spec(spec))\n"
    site.write("work/__init__.py", source)
    site.write("inner/__init__.py", "from inner import _core\nfrom inner._core import x\n")
    site.write("inner/_core.py", "x = 1\n")
    assert site.imports("work")
    assert site.outcome("work").stopped is None


@SLOW
def test_a_module_without_a_name(site: Site) -> None:
    """A source may give it none; the walk begins at such a one, too."""
    source = "import importlib.util\nspec = importlib.util.spec_from_file_location('', __file__)\n"
    site.write("work/__init__.py", source + "importlib.util.module_from_spec(spec)\n")
    assert site.imports("work")
    assert said(site.outcome("work"), site) == []


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("mapped", ["libfirst.so", "libother.so"])
def test_what_a_process_has_mapped_is_read_by_its_source(site: Site, mapped: str) -> None:
    """As torch, which opens NVIDIA's libraries where /proc/self/maps names libcudart.so."""
    shared(site.path / f"pre/{mapped}", "int a(void){return 1;}")
    site.write("pre/__init__.py", OPEN + opens(mapped))
    lost_extension(site, "late/plugin.so")
    ask = "with open('/proc/self/maps') as file:\n maps = file.read()\nif 'libfirst.so' in maps:\n "
    site.write("late/__init__.py", "import pre\n" + OPEN + ask + opens("plugin.so"))
    is_first = mapped == "libfirst.so"
    assert site.imports("late") is not is_first
    assert said(site.outcome("late"), site) == ["error RLK101 libtbb.so.12"] * is_first


KEPT = {
    "variable": "_lib = None\ndef get():\n global _lib\n if _lib is None:\n  _lib = OPENED\n return _lib\n",
    "dictionary": "_libs = {}\ndef get():\n if 'x' not in _libs:\n  _libs['x'] = OPENED\n return _libs['x']\n",
    "attribute": "class Lib:\n lib = None\n def __call__(self):\n  if self.lib is None:\n   self.lib = OPENED\n"
    "  return self.lib\nget = Lib()\n",
    "variable of a module": "import keeper\ndef get():\n if keeper.lib is None:\n  keeper.lib = OPENED\n return keeper.lib\n",
    "dictionary of a module": "import keeper\ndef get():\n if 'x' not in keeper.libs:\n  keeper.libs['x'] = OPENED\n"
    " return keeper.libs['x']\n",
}


@pytest.mark.few(1, reason="the same of other places to keep it")
@pytest.mark.parametrize("place", KEPT)
def test_a_library_that_a_function_of_another_package_keeps(site: Site, place: str) -> None:
    """Where the dlopen fails nothing is kept, whoever called the function first."""
    lost_extension(site, "lost/lib.so")
    opened = "ctypes.CDLL(os.path.join(HERE, '../lost/lib.so'))"
    site.write("helper/__init__.py", OPEN + KEPT[place].replace("OPENED", opened))
    site.write("keeper/__init__.py", "lib = None\nlibs = {}\n")
    site.write("user/__init__.py", "import helper\nhelper.get()\n")
    guarded = "try:\n ctypes.CDLL(os.path.join(HERE, '../lost/other.so'))\nexcept OSError:\n pass\n"
    lost_extension(site, "lost/other.so")
    site.write("late/__init__.py", f"import helper\n{OPEN}{guarded}helper.get()\n")
    for name in ("user", "late"):
        assert not site.imports(name)
        assert said(site.outcome(name), site)[0] == "error RLK101 libtbb.so.12"
