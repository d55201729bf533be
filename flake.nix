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
        inherit (import ./default.nix { pkgs = final; }) relink relinkHook rocmSdk;
        pythonPackagesExtensions = (prev.pythonPackagesExtensions or [ ]) ++ [
          (pythonFinal: _: { relinkWheel = pythonFinal.callPackage ./nix/relink-wheel.nix { }; })
        ];
      };

      lib = {
        relinkWheel = pythonPackages: pythonPackages.callPackage ./nix/relink-wheel.nix { };

        # For uv2nix: overrides for the wheels that have a plan in a directory.
        uvOverlay = import ./nix/uv-overlay.nix;

        # An overlay for nixpkgs: packages of `relink nix` in the places of others, METADATA's name included.
        #   dropIn { onnxruntime = ./pkgs/onnxruntime-rocm/package.nix; }
        dropIn = replaced: _: prev: {
          pythonPackagesExtensions = (prev.pythonPackagesExtensions or [ ]) ++ [
            (
              pythonFinal: _:
              builtins.mapAttrs (
                name: path:
                pythonFinal.callPackage path {
                  relinkWheel =
                    arguments: pythonFinal.callPackage ./nix/relink-wheel.nix { } (arguments // { provides = name; });
                }
              ) replaced
            )
          ];
        };
      };

      templates = {
        default = {
          path = ./examples/nix;
          description = "A package of a ROCm wheel and a shell with it";
        };
        uv2nix = {
          path = ./examples/uv2nix;
          description = "ROCm wheels of a uv.lock, relinked for nixpkgs' ROCm";
        };
      };

      checks.${system}.compatibility =
        let
          isa = import ./nix/isa.nix { inherit (pkgs) lib; };
          target = name: version: {
            target = name;
            inherit version;
          };
          file.sets = [
            [
              (target "gfx1030" null)
              (target "gfx11-generic" 1)
            ]
          ];
        in
        assert isa.covers file "gfx1103";
        assert !(isa.covers file "gfx1031");
        pkgs.runCommand "relink-compatibility" { } "touch $out";

      formatter.${system} = pkgs.nixfmt-tree;
    };
}
