# autoRelinkHook: for a Python package of a vendor's wheel what autoPatchelfHook is for a program (docs/nix.md has its attributes).
#   nativeBuildInputs = [ autoRelinkHook pypaInstallHook wheelUnpackHook ];
#   buildInputs = [ rocmPackages.clr rocmPackages.rocblas ];
{
  lib,
  stdenv,
  makeSetupHook,
  patchelf,
  python,
  relink,
  rocmPackages,
}:

makeSetupHook {
  name = "auto-relink-hook";
  substitutions = {
    inherit (python) sitePackages;
    python = python.interpreter;
    patchelf = lib.getExe' patchelf "patchelf";
    relink = lib.getExe relink;
    runtime = "${lib.getLib stdenv.cc.cc}";
    # GPUs that the set was narrowed to (rocmPackages.gfx1030); those that an input was narrowed to are in its name.
    gpus = toString (rocmPackages.clr.localGpuTargets or [ ]);
  };
  meta = {
    description = "Relink the ELF files of a wheel to what buildInputs have, and fail where they would not load";
    license = lib.licenses.mit;
    platforms = [ "x86_64-linux" ];
  };
} ./auto-relink-hook.sh
