{
  description = "The stand-in for nixpkgs as a flake";

  outputs = _: {
    lib = import ./lib.nix;
    legacyPackages.x86_64-linux = import ./default.nix { };
  };
}
