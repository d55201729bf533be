"""Nix expressions from a plan."""
