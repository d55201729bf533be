# For nixpkgs without flakes: import <nixpkgs> { overlays = [ (import ./overlay.nix) ]; }
final: prev:

let
  own = import ./default.nix { pkgs = final; };
in
{
  inherit (own) relink rocmSdk;
  # autoRelinkHook belongs to a set of Python packages: `python312Packages.autoRelinkHook`.
  pythonPackagesExtensions = (prev.pythonPackagesExtensions or [ ]) ++ [
    (pythonFinal: _: own.of pythonFinal)
  ];
}
