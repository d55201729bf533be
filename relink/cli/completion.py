"""What a shell proposes behind an option. Each takes what has been typed of the word, and imports what it alone needs."""

from __future__ import annotations

__all__ = ["gpu_names", "profile_names", "rule_codes"]


def rule_codes(incomplete: str) -> list[tuple[str, str]]:
    """Return (code, title) of the rules that start so."""
    from relink.system.findings.model import RULES

    return [(rule.code, rule.title) for rule in RULES.values() if rule.code.startswith(incomplete)]


def profile_names(incomplete: str) -> list[str]:
    """Return the names of the shipped profiles that start so."""
    from relink.providers.profiles import shipped_profiles

    return [name for name in sorted(shipped_profiles()) if name.startswith(incomplete)]


def gpu_names(incomplete: str) -> list[tuple[str, str]]:
    """Return (processor, its products) of the GPUs that start so, and ``auto``."""
    from relink.gpu import table

    names = [("auto", "the GPUs of this machine")]
    names += [(gpu.name, ", ".join(gpu.products)) for gpu in table().processors.values()]
    return [(name, what) for name, what in names if name.startswith(incomplete.lower())]
