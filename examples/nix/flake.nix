{
  description = "A shell with onnxruntime on ROCm";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  # Of the registry: nix registry add relink PATH
  inputs.relink.url = "relink";
  inputs.relink.inputs.nixpkgs.follows = "nixpkgs";

  outputs =
    { nixpkgs, relink, ... }:
    let
      system = "x86_64-linux";
      pkgs = nixpkgs.legacyPackages.${system}.extend relink.overlays.default;
      # Built for one GPU, which the wheel is then held against: rocmPackages.gfx1030, for example.
      inherit (pkgs) rocmPackages;
      onnxruntime-rocm = pkgs.python312Packages.callPackage ./package.nix { inherit rocmPackages; };
    in
    {
      packages.${system}.default = onnxruntime-rocm;
      devShells.${system}.default = pkgs.mkShell {
        packages = [
          (pkgs.python312.withPackages (_: [ onnxruntime-rocm ]))
        ];
      };
    };
}
