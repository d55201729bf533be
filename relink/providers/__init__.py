"""Where libraries come from: a prefix, the Nix store, the platform that a manylinux tag promises."""
