"""The table of whose symbols are, and what is read from a symbol's name."""

from __future__ import annotations

import tomllib

import pytest

from relink.system.shipped_files import shipped_directory
from relink.vendors.rocm.facts import rocm_facts, who_has
from relink.vendors.rocm.names import owner_of, owners, source_name, whose
from tests.support.symbol_names import pattern_of, words_of

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
