"""index.pip_settings: what pip itself says that it is configured for."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.indexes.build.pip_settings import PipSettings, pip_settings
from relink.indexes.install.installers import InstallerError
from relink.system.errors import UsageError

CONFIG = """\
[global]
index-url = https://one.test/simple/
extra-index-url =
    https://two.test/simple
    file:///srv/simple
cert = /etc/ca.pem
find-links = /srv/a https://links.test/
[download]
cert = /etc/other.pem
[install]
index-url = https://never.test/simple
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("INDEX_URL", "EXTRA_INDEX_URL", "CERT", "PROXY", "NO_INDEX", "FIND_LINKS"):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    path = tmp_path / "pip.conf"
    path.write_text(CONFIG)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(path))
    return path


@pytest.mark.slow(reason="pip runs")
def test_files_sections_and_environment(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ("https://two.test/simple", "file:///srv/simple")
    assert config.exists()
    assert pip_settings() == PipSettings(
        ("https://one.test/simple", *more), "/etc/other.pem", find_links=("/srv/a", "https://links.test/")
    )
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:x@three.test/simple")
    monkeypatch.setenv("PIP_PROXY", "http://proxy.test:1")
    settings = pip_settings()
    assert settings.indexes == ("https://me:x@three.test/simple", *more)
    assert settings.proxy == "http://proxy.test:1"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert pip_settings().indexes == ()


@pytest.mark.slow(reason="pip runs")
def test_the_index_that_pip_asks_by_itself(config: Path) -> None:
    config.write_text("")
    (index,) = pip_settings().indexes
    assert index.startswith("https://")
    assert index.endswith("/simple")


def test_a_pip_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "pip"
    broken.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr("relink.indexes.build.pip_settings.find_pip", lambda: [str(broken)])
    with pytest.raises(InstallerError, match="pip cannot be asked") as caught:
        pip_settings()
    assert caught.value.issues == ("broken",)
    broken.write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(UsageError, match="which index it asks"):
        pip_settings()
