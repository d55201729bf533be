{
  description = "A shell with onnxruntime on ROCm";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { nixpkgs, ... }:
    let
      system = "x86_64-linux";
      pkgs = nixpkgs.legacyPackages.${system};
      # Built for one GPU: rocmPackages of a narrower set, which the package then holds the wheel against.
      rocmPackages = pkgs.rocmPackages.gfx1030 or pkgs.rocmPackages;
      relinkWheel = pkgs.python312Packages.callPackage ./relink/relink-wheel.nix {
        inherit rocmPackages;
      };
      onnxruntime-rocm = pkgs.python312Packages.callPackage ./package.nix { inherit relinkWheel; };
    in
    {
      packages.${system}.default = onnxruntime-rocm;
      devShells.${system}.default = pkgs.mkShell {
        packages = [ (pkgs.python312.withPackages (_: [ onnxruntime-rocm ])) ];
        # Says so where LD_LIBRARY_PATH has other libraries than those that it was linked with.
        shellHook = onnxruntime-rocm.relinkShadowCheck;
      };
    };
}
