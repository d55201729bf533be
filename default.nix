# For those without flakes: `nix-build -A relink`, or `(import ./. { inherit pkgs; }).relinkWheel`.
{
  pkgs ? import <nixpkgs> { },
}:

{
  relink = pkgs.python3Packages.callPackage ./nix/relink.nix {
    patchelf = pkgs.callPackage ./nix/patchelf.nix { };
  };
  relinkHook = pkgs.callPackage ./nix/relink-hook.nix { };
  rocmSdk = pkgs.callPackage ./nix/rocm-sdk.nix {
    patchelf = pkgs.callPackage ./nix/patchelf.nix { };
  };
  # For python3Packages; of another set it is `python312Packages.callPackage ./nix/relink-wheel.nix { }`.
  relinkWheel = pkgs.python3Packages.callPackage ./nix/relink-wheel.nix { };
}
