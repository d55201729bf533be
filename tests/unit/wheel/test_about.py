"""Which of METADATA's fields and spellings are read."""

from __future__ import annotations

import pytest
from packaging.metadata import parse_email

from relink.wheel.about import read_about


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            "Summary: S.\nHome-page: https://h\nLicense: MIT License",
            {"description": "S", "homepage": "https://h", "license": "MIT"},
        ),
        (
            "License-Expression: apache-2.0\nProject-URL: HomePage, https://p",
            {"homepage": "https://p", "license": "Apache-2.0"},
        ),
        ("License: Copyright AMD, see LICENSE\nHome-page: UNKNOWN", {}),
        ("License-Expression: MIT OR Apache-2.0", {"license": "MIT OR Apache-2.0"}),
        ("Summary: A demonstration\n  of it.", {"description": "A demonstration of it"}),
        ("License: Apache 2.0", {"license": "Apache-2.0"}),
        ("Classifier: License :: OSI Approved :: MIT License", {"license": "MIT"}),
        ("Classifier: License :: OSI Approved :: BSD License", {}),
        ("Project-URL: Changelog, https://c", {"changelog": "https://c"}),
        ("License-Expression: LicenseRef-AMD", {"license": "LicenseRef-AMD"}),
    ],
)
def test_what_the_wheel_says_of_itself(lines: str, expected: dict[str, str]) -> None:
    text = f"Metadata-Version: 2.4\nName: x\nVersion: 1\n{lines}\n\nText\n"
    assert read_about(parse_email(text.encode())[0]) == expected
