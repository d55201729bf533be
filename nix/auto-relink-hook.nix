# autoRelinkHook: for a Python package of a vendor's wheel what autoPatchelfHook is for a program.
#   nativeBuildInputs = [ autoRelinkHook pypaInstallHook wheelUnpackHook ];
#   buildInputs = with rocmPackages; [ clr rocblas ];
# relinkStub, relinkForward, relinkAllowMissing, relinkGpus and relinkFlags are lists of words; dontAutoRelink switches it off.
{
  lib,
  stdenv,
  makeSetupHook,
  python,
  relink,
  rocmPackages,
}:

let
  # GPUs that the set was narrowed to (rocmPackages.gfx1030). Of a family (rocmPackages.gfx11) one is enough, so that is a warning.
  gpus = rocmPackages.clr.localGpuTargets or [ ];
  known = (lib.importTOML ../profiles/rocm/rocm.toml).component;
  named = builtins.filter (lib.hasPrefix "rocmPackages.") (
    map (row: row.attribute or "") known
  );
in
makeSetupHook {
  name = "auto-relink-hook";
  substitutions = {
    inherit (python) sitePackages;
    python = python.interpreter;
    pythonPrefix = "${python}";
    relink = lib.getExe relink;
    runtime = "${lib.getLib stdenv.cc.cc}";
    gpuOptions = toString (
      map (gpu: "--gpu=${gpu}") gpus ++ lib.optional (builtins.length gpus > 1) "--allow-isa-gap"
    );
  };
  # All packages of a scope such as rocmPackages that relink knows of, for who does not know which ones a wheel needs.
  passthru.libraries =
    scope:
    let
      of = name: lib.attrByPath (builtins.tail (lib.splitString "." name)) null scope;
      there = name: (builtins.tryEval (of name != null && !((of name).meta.broken or false))).value;
    in
    map of (builtins.filter there (lib.unique named));
} ./auto-relink-hook.sh
