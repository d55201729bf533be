"""The table of what is known of ROCm."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import relink.vendors.rocm.facts
from relink.system.errors import UsageError
from relink.system.shipped_files import shipped_directory
from relink.vendors.registry import find_component
from relink.vendors.rocm.facts import (
    dlopens_of,
    owner_of,
    owners,
    rocm_facts,
    same_abi,
    source_name,
    who_has,
    whose,
)
from relink.vendors.rocm.vendor import rocm
from tests.support.symbol_names import pattern_of, words_of


def test_rocm_smi_is_one_abi_under_two_numbers() -> None:
    why = same_abi("librocm_smi64.so.1", "librocm_smi64.so.7")
    assert why is not None
    assert why == same_abi("librocm_smi64.so.7", "librocm_smi64.so.1")
    assert same_abi("librocm_smi64.so.1", "librocm_smi64.so.1") is None
    assert same_abi("libhipblas.so.2", "libhipblas.so.3") is None


def test_what_belongs_to_the_machine() -> None:
    assert rocm.libraries.of_host("libhsa-runtime64.so.1")
    assert rocm.libraries.of_host("librccl-net.so")
    assert rocm.libraries.of_host("libamdhip64.so.7") is None


def test_globs_are_matched_with_what_there_is() -> None:
    available = ("libamd_comgr.so.3", "libamd_comgr.so.2", "libfoo.so.1")
    assert set(dlopens_of("libamdhip64.so.7", available)) == {"libamd_comgr.so.3", "libamd_comgr.so.2"}
    assert set(dlopens_of("libamdhip64.so.7", ())) == {"libamd_comgr.so.*"}
    assert dlopens_of("libfoo.so.1", available) == {}


def test_what_only_describes_an_error_and_what_has_a_number_of_its_own() -> None:
    for name in (
        *(
            "ncclGetErrorString",
            "ncclGetLastError",
            "hipGetErrorString",
            "hiprtcGetErrorString",
            "miopenGetErrorString",
        ),
        *("rocprofiler_get_status_name", "rocprofiler_get_status_string", "roctracer_error_string"),
        *("rocblas_status_to_string", "hipblasStatusToString", "rocprofiler_register_error_string"),
    ):
        assert rocm.libraries.text_of(name) == "returned"
    assert rocm.libraries.text_of("amdsmi_status_code_to_string") == "stored"
    assert rocm.libraries.text_of("ncclGetVersion") is None
    stubs = rocm_facts().stubs
    assert stubs["libroctracer64.so"].functions >= {"roctracer_version_major", "roctracer_get_timestamp"}
    assert all(facts.answer for facts in stubs.values())  # none is 0, which would be success
    assert not [name for name in rocm_facts().texts if name in stubs["librccl.so"].functions]


@pytest.mark.parametrize(
    ("soname", "debian", "fedora", "arch"),
    [
        ("librocm_smi64.so.1", "librocm-smi64-1", "rocm-smi", "rocm-smi-lib"),
        ("librocm_smi64.so.7", "librocm-smi64-7", "rocm-smi", "rocm-smi-lib"),
        ("libamdhip64.so.6", "libamdhip64-6", "rocm-hip", "hip-runtime-amd"),
        ("libamdhip64.so.99", None, "rocm-hip", "hip-runtime-amd"),
        ("libhipfftw.so.0", "libhipfftw0", "hipfft", "hipfft"),
        ("libamd_comgr.so.2", None, "rocm-comgr", "comgr"),
        ("libroctracer64.so.4", None, "roctracer", "roctracer"),
        ("libhipsparselt.so.0", "libhipsparselt0", "hipsparselt", "hipsparselt"),
        ("libnuma.so.1", "libnuma1", None, "numactl"),
    ],
)
def test_who_has_what(soname: str, debian: str | None, fedora: str | None, arch: str | None) -> None:
    component = who_has(soname)
    assert component is not None
    assert component.package(soname, "debian") == debian
    assert component.package(soname, "fedora") == fedora
    assert component.package(soname, "arch") == arch
    assert component.package(soname, "nixos") is None
    assert component.package(soname, None) is None


def test_what_nobody_has() -> None:
    assert who_has("librocm_sysdeps_numa.so.1") is None
    assert find_component("librocm_sysdeps_numa.so.1", 7) is None
    assert find_component("libamdhip64.so.7", 7) is not None


@pytest.mark.parametrize(
    ("soname", "major", "attribute", "there"),
    [
        ("libhipsparselt.so.0", 7, "rocmPackages.hipsparselt", "libhipsparselt.so.0"),
        ("libamd_comgr.so.3", 6, "rocmPackages.rocm-comgr", "libamd_comgr.so.3"),
        ("libmigraphx_gpu.so.2014000", 7, "rocmPackages.migraphx", "libmigraphx_gpu.so.2014000"),
        ("libmigraphx_gpu.so.2099000", 7, "rocmPackages.migraphx", "libmigraphx_gpu.so.2015000"),
        ("libmigraphx_tf.so.2012000", 6, "rocmPackages.migraphx", "libmigraphx_tf.so.2012000"),
        ("libaotriton_v2.so.0.11.1", 7, "rocmPackages.aotriton", "libaotriton_v2.so.0.11.1"),
        ("libaotriton_v2.so.0.10.0", 7, "rocmPackages.aotriton", "libaotriton_v2.so.0.11.1"),
        ("libhiprt64.so", 7, "rocmPackages.hiprt", "libhiprt64.so"),
        ("libhsakmt.so.1", 6, "rocmPackages.hsakmt", "libhsakmt.so.1"),
        ("libhipfftw.so.0", 7, "rocmPackages.hipfft", "libhipfftw.so.0"),
        ("librocalution.so.0", 7, "rocmPackages.rocalution", "librocalution.so.1"),
        ("librocm-core.so.1", 7, "rocmPackages.rocm-core", "librocm-core.so.1"),
        ("libhsa-amd-aqlprofile64.so.1", 7, "rocmPackages.aqlprofile", "libhsa-amd-aqlprofile64.so.1"),
        ("librpp.so.2", 7, "rocmPackages.rpp", "librpp.so.2"),
        ("libomp.so", None, "rocmPackages.llvm.openmp", "libomp.so"),
        ("libbz2.so.1", None, "pkgs.bzip2", "libbz2.so.1"),
        ("libffi.so.8", None, "pkgs.libffi", "libffi.so.8"),
    ],
)
def test_what_nixpkgs_has(soname: str, major: int | None, attribute: str, there: str) -> None:
    found = find_component(soname, major)
    assert found is not None
    assert (found[0].attribute, found[1]) == (attribute, there)


def test_no_library_belongs_to_two_components() -> None:
    stems: dict[str, str] = {}
    for component in rocm_facts().components:
        for soname in {*component.of(None), *component.debian}:
            stem = soname.partition(".so")[0]
            assert stems.setdefault(stem, component.name) == component.name


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("schema = 'other/1'", r"rocm\.toml:1: schema: "),
        ("schema = 'relink.rocm.facts/1'\nwrong = 1", r"rocm\.toml:2: wrong: no such key"),
        ("[[", r"rocm\.toml:1: not TOML"),
        (
            "schema='relink.rocm.facts/1'\n[[same_abi]]\nwhy=''",
            r"rocm\.toml:2: same_abi\[0\]: the key sonames is missing",
        ),
        (
            "schema='relink.rocm.facts/1'\n[[component]]\nname='x'\nsonames.8=['libx.so.1']",
            r"rocm\.toml:4: component\[0\]\.sonames\.8: no such key",
        ),
    ],
)
def test_a_damaged_table(text: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rocm").mkdir()
    (tmp_path / "rocm/rocm.toml").write_text(text)
    monkeypatch.setattr(relink.vendors.rocm.facts, "shipped_directory", lambda _: tmp_path)
    rocm_facts.cache_clear()
    with pytest.raises(UsageError, match=where):
        rocm_facts()
    rocm_facts.cache_clear()


ROWS = tomllib.loads((shipped_directory("profiles") / "rocm/rocm-names.toml").read_text())["owner"]
EXAMPLES = [(row["component"], name) for row in ROWS for name in row.get("examples", ())]


def test_every_owner_is_a_component_with_these_libraries() -> None:
    names = {item.name for item in rocm_facts().components}
    for owner in owners():
        assert owner.component in names
        for library in owner.libraries:
            component = who_has(f"{library}.0")
            assert component is not None
            assert component.name == owner.component


def test_patterns_are_anchored() -> None:
    for row in ROWS:
        for pattern in row["names"]:
            assert pattern.startswith("^")


def test_a_name_belongs_to_one_component() -> None:
    assert len(EXAMPLES) > 30
    for component, name in EXAMPLES:
        assert [owner.component for owner in owners() if owner.has(name)] == [component]


@pytest.mark.parametrize(
    ("name", "component"),
    [
        ("ncclAllReduce", "RCCL"),
        ("hipMalloc", "HIP"),
        ("__hipRegisterFatBinary", "HIP"),
        ("hiprtcVersion", "HIP"),
        ("hipblasSgemm", "hipBLAS"),
        ("hipblasLtCreate", "hipBLASLt"),
        ("hipsparseLtInit", "hipSPARSELt"),
        ("hipsparseCreate", "hipSPARSE"),
        ("rocprofiler_register_library_api_table", "rocprofiler-register"),
        ("rocprofiler_configure", "rocprofiler-sdk"),
        ("roctracer_enable_callback", "roctracer"),
        ("rsmi_init", "ROCm SMI"),
        ("amdsmi_init", "AMD SMI"),
        ("_ZN6miopen6HandleC1Ev", "MIOpen"),
        ("_ZNK6miopen6Handle3getEv", "MIOpen"),
        ("_ZTVN6miopen6HandleE", "MIOpen"),
        ("_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_t", "HIP"),
        ("_ZN9miopenish6HandleC1Ev", None),
        ("_ZNSt6vectorIN6miopen6HandleEE3endEv", None),
        ("hipster", None),
        ("my_hipMalloc", None),
        ("_ZN99miopen", None),
        ("", None),
    ],
)
def test_whose_is_it(name: str, component: str | None) -> None:
    owner = owner_of(name)
    assert (owner and owner.component) == component


def test_a_library_and_a_name() -> None:
    assert whose("librccl.so.1", "ncclSend") == "own"
    assert whose("libhipsolver.so.9", "ncclSend") == "foreign"
    assert whose("libhipfft.so.0", "mystery") == "foreign"  # all that it exports is in the table
    assert whose("libroctracer64.so.4", "mystery") == "unknown"
    assert whose("libroctracer64.so.4", "ncclSend") == "foreign"
    assert whose("libunheard.so.1", "ncclSend") == "unknown"
    assert whose("libamd_smi.so.26", "rsmi_init") == "shared"  # it exports that, too


def test_mangled_names() -> None:
    assert source_name("_ZN6miopen6HandleC1Ev") == ("miopen", True)
    assert source_name("_Z3fooi") == ("foo", False)
    assert source_name("_ZNSt6vectorE") == ("_ZNSt6vectorE", False)
    assert source_name("_ZN6mio") == ("_ZN6mio", False)
    assert source_name("plain") == ("plain", False)


class TestMaking:
    """How scripts/record-names finds the words."""

    def test_a_longer_word_is_left_out_of_the_shorter_ones(self) -> None:
        names = {"BLAS": ["blasOne", "blasTwo", "blasThree"], "Lt": ["blasLtA", "blasLtB", "blasLtC"]}
        assert words_of(names) == {"BLAS": {"blas": {"Lt"}}, "Lt": {"blasLt": set()}}
        assert pattern_of("blas", {"Lt"}) == "^blas(?!Lt(?![a-z]))(?![a-z])"

    def test_a_word_of_two_is_nobodys(self) -> None:
        names = {
            "A": ["fmtOne", "fmtTwo", "fmtSix"],
            "B": ["fmtOne", "fmtTwo", "fmtSix", "bOne", "bTwo", "bSix"],
        }
        assert words_of(names) == {"A": {}, "B": {"b": set()}}

    def test_a_few_names_make_no_word(self) -> None:
        assert words_of({"A": ["fooOne", "fooTwo"]}) == {"A": {}}
