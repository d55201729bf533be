# relinkHook: the same edits for those who write their own derivation.
#   nativeBuildInputs = [ relinkHook ];
#   relinkPlan = relinkHook.plan { plan = ./name.json; };
# It switches strip, --shrink-rpath and autoPatchelfHook off.
{
  lib,
  stdenv,
  makeSetupHook,
  patchelf,
  pkgs,
  rocmPackages,
  writeText,
}:

let
  resolve = import ./resolve.nix {
    inherit
      lib
      stdenv
      pkgs
      rocmPackages
      ;
  };
in
makeSetupHook {
  name = "relink-hook";
  propagatedBuildInputs = [ patchelf ];
  substitutions.functions = ./relink.sh;
  passthru.plan = arguments: writeText "relink-plan.sh" (resolve arguments).shell;
} ./relink-hook.sh
