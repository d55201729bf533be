# For those without flakes: `nix-build -A relink`, or `(import ./. { inherit pkgs; }).autoRelinkHook`.
{
  pkgs ? import <nixpkgs> { },
  patchelf ? pkgs.callPackage ./nix/patchelf.nix { },
  relink ? pkgs.python3Packages.callPackage ./nix/relink.nix { inherit patchelf; },
}:

rec {
  inherit patchelf relink;
  # What belongs to one Python: `(import ./. { inherit pkgs; }).of pkgs.python312Packages`.
  of = pythonPackages: {
    autoRelinkHook = pythonPackages.callPackage ./nix/auto-relink-hook.nix { inherit relink; };
    inherit relinkWheel;
  };
  inherit (of pkgs.python3Packages) autoRelinkHook;
  uvOverlay = import ./nix/uv-overlay.nix of;
  # Of relink 0.2.0.
  relinkWheel = throw "relinkWheel was removed from relink: use buildPythonPackage with autoRelinkHook, as `relink nix WHEEL` writes it";
  rocmSdk = throw "rocmSdk was removed from relink: copy examples/nix/rocm-sdk.nix, and put the package into buildInputs";
}
