"""What METADATA says of a distribution to its users: what it is, where it is at home, and its licence."""

from __future__ import annotations

import re

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.metadata import RawMetadata

_CHANGES = "changelog", "changes", "release notes", "release-notes", "releases"
# Licences as METADATA spells them → as SPDX does.
_LICENSES = {
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "license :: osi approved :: mit license": "MIT",
    "license :: osi approved :: mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
}


def read_about(metadata: RawMetadata) -> dict[str, str]:
    """Return `description`, `homepage`, `changelog` and `license`, an expression of SPDX; what is not said is left out."""
    urls = {label.strip().lower(): url for label, url in metadata.get("project_urls", {}).items()}
    homes = [metadata.get("home_page", ""), urls.get("homepage", "")]
    stated = [
        metadata.get("license_expression", ""),
        metadata.get("license", "").removesuffix(" License"),
        *metadata.get("classifiers", ()),
    ]
    rows = {
        "description": re.sub(r"\s+", " ", metadata.get("summary", "")).strip().removesuffix("."),
        "homepage": next((home for home in homes if home.startswith("http")), ""),
        "changelog": next((urls[name] for name in _CHANGES if urls.get(name, "").startswith("http")), ""),
        "license": next(filter(None, map(_spdx, stated)), ""),
    }
    return {name: text for name, text in rows.items() if text}


def _spdx(text: str) -> str:
    text = _LICENSES.get(text.strip().lower(), text)
    try:
        return str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        return ""
