"""The options that make the same plan anew."""

from __future__ import annotations

from relink.planning.options import Options
from relink.report.nix.anew import options_text


def test_what_decides_the_plan_is_said_and_quoted() -> None:
    options = Options(
        prefixes=["/rocm"],
        python="/usr/bin/python3",
        gpus=["RX 6750 XT", "gfx1100"],
        allow_missing=["librare"],
        profile="./mine.toml",
        stub=["auto"],
        preload_known=False,
    )
    said = "--gpu 'RX 6750 XT' --gpu gfx1100 --allow-missing librare --stub auto --profile ./mine.toml --no-preload"
    assert options_text(options) == said
    assert options_text(Options()) == ""
