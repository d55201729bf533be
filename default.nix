# For those without flakes: `nix-build -A relink`, or `(import ./. { inherit pkgs; }).relinkWheel`.
{
  pkgs ? import <nixpkgs> { },
  patchelf ? pkgs.callPackage ./nix/patchelf.nix { },
  relink ? pkgs.python3Packages.callPackage ./nix/relink.nix { inherit patchelf; },
}:

rec {
  inherit patchelf relink;
  # What belongs to one Python: `(import ./. { inherit pkgs; }).of pkgs.python312Packages`.
  of = pythonPackages: rec {
    autoRelinkHook = pythonPackages.callPackage ./nix/auto-relink-hook.nix { inherit relink; };
    relinkWheel = pythonPackages.callPackage ./nix/relink-wheel.nix { inherit autoRelinkHook; };
  };
  inherit (of pkgs.python3Packages) autoRelinkHook relinkWheel;
  rocmSdk = pkgs.callPackage ./nix/rocm-sdk.nix { inherit patchelf; };
  uvOverlay = import ./nix/uv-overlay.nix of;
}
