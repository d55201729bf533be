{
  description = "Relink AMD's prebuilt ROCm wheels against the ROCm you have";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  # There is no flake.lock: it pins a nixpkgs, and none was available where this was written.

  outputs =
    { self, nixpkgs }:
    let
      # AMD ships wheels for this one only.
      system = "x86_64-linux";
      pkgs = nixpkgs.legacyPackages.${system};
      own = import ./default.nix { inherit pkgs; };
    in
    {
      packages.${system} = {
        default = own.relink;
        inherit (own) relink relinkHook;
      };

      # relinkWheel belongs to a set of Python packages: `python312Packages.relinkWheel`.
      overlays.default = final: prev: {
        inherit (import ./default.nix { pkgs = final; }) relink relinkHook;
        pythonPackagesExtensions = (prev.pythonPackagesExtensions or [ ]) ++ [
          (pythonFinal: _: { relinkWheel = pythonFinal.callPackage ./nix/relink-wheel.nix { }; })
        ];
      };

      lib.relinkWheel = pythonPackages: pythonPackages.callPackage ./nix/relink-wheel.nix { };

      checks.${system}.compatibility =
        let
          resolved = import ./nix/resolve.nix {
            inherit (pkgs) lib stdenv;
            inherit pkgs;
            rocmPackages = { };
          } { plan = ./nix/check-plan.json; };
          file = builtins.head resolved.plan.coverage;
        in
        assert resolved.covers file "gfx1103";
        assert !(resolved.covers file "gfx1031");
        pkgs.runCommand "relink-compatibility" { } "touch $out";

      formatter.${system} = pkgs.nixfmt-tree;
    };
}
