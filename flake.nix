{
  description = "Relink AMD's prebuilt ROCm wheels against the ROCm you have";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  # There is no flake.lock: it pins a nixpkgs, and none was available where this was written.

  outputs =
    { nixpkgs, ... }:
    let
      # AMD ships wheels for this one only.
      system = "x86_64-linux";
      pkgs = nixpkgs.legacyPackages.${system};
      own = import ./default.nix { inherit pkgs; };
    in
    {
      packages.${system} = {
        default = own.relink;
        inherit (own) relink patchelf;
      };

      checks.${system} = {
        inherit (own) relink autoRelinkHook;
      };

      overlays.default = import ./overlay.nix;

      lib = {
        # For a set of Python packages without the overlay: `relink.lib.of pkgs.python312Packages`.
        inherit (own) of;

        # For uv2nix: the hook on each wheel that needs ROCm.
        inherit (own) uvOverlay;
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

      formatter.${system} = pkgs.nixfmt-tree;
    };
}
