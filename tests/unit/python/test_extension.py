"""Names of modules in the data of an extension."""

from __future__ import annotations

import subprocess
import zlib
from pathlib import Path

import pytest

from relink.python.extension import read_extension_names
from tests.support.python_processes import opened, read_events, write_files

JOINED = "__name__" + "a" * 80 + "itemsother.apipropertyproxy.partreprpackage._own__main__"


def compiled(tmp_path: Path, *strings: bytes) -> bytes:
    """An ELF file with strings in its read-only data."""
    source = tmp_path / "a.c"
    texts = (
        f"const char s{number}[] = {{{','.join(str(byte) for byte in text)},0}};"
        for number, text in enumerate(strings)
    )
    source.write_text("const char first[] = {0,0};\n" + "\n".join(texts))
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "a.so", source], check=True)
    return (tmp_path / "a.so").read_bytes()


def test_strings_and_capsules(tmp_path: Path) -> None:
    names = read_extension_names(compiled(tmp_path, b"other.api", b"datetime.datetime_CAPI", b"two words"))
    assert names.certain == ("datetime",)
    assert {"other.api", "datetime.datetime_CAPI"} <= set(names.names)
    assert "two words" not in names.names


@pytest.mark.parametrize("compress", [False, True])
def test_joined_strings_of_cython(tmp_path: Path, compress: bool) -> None:
    text = zlib.compress(JOINED.encode()) if compress else JOINED.encode()
    names = read_extension_names(compiled(tmp_path, b"__pyx_capi__", b"zlib", text))
    assert "other.apiproperty" in names.joined
    assert names.certain == (("zlib",) if compress else ())


@pytest.mark.parametrize("data", [b"", b"no ELF file", b"\x7fELF" + b"\0" * 60])
def test_what_is_no_elf_file_has_no_names(data: bytes) -> None:
    assert read_extension_names(data).names == ()


def test_an_import_in_c_is_inferred(tmp_path: Path) -> None:
    """Only modules of the own package and of what the distribution requires are taken for imports."""
    data = compiled(tmp_path, b"__pyx_capi__", b"package.own", b"stranger.api", JOINED.encode())
    metadata = "Metadata-Version: 2.1\nName: {0}\nVersion: 1\n{1}\n"
    write_files(
        tmp_path / "site",
        {
            "package/__init__.py": "from . import x\n",
            "package/x.so": data,
            **{
                f"{name}.so": ""
                for name in ("package/own", "package/_own", "other/api", "stranger/api", "proxy/part")
            },
            "package-1.dist-info/METADATA": metadata.format("package", "Requires-Dist: Other-Thing>=1"),
            "package-1.dist-info/RECORD": "package/__init__.py,,\n",
            "other_thing-1.dist-info/METADATA": metadata.format("other-thing", ""),
            "other_thing-1.dist-info/RECORD": "other/api.so,,\n",
        },
    )
    found = opened(read_events(tmp_path / "site", "package"), tmp_path / "site")
    assert found == [
        ("package/x.so", "certain"),
        ("package/own.so", "inferred"),
        ("other/api.so", "inferred"),
        ("package/_own.so", "inferred"),
    ]
