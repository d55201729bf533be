# relinkWheel: a Python package of a vendor's wheel, from the plan that `relink nix` wrote. The wheel is unpacked into the package,
# so Nix sees the store paths in its libraries; autoPatchelfHook has no part in it, since it would write search paths of its own.
{
  lib,
  stdenv,
  buildPythonPackage,
  fetchPypi,
  fetchurl,
  patchelf,
  pkgs,
  python,
  rocmPackages,
}:

{
  plan,
  gpuTargets ? null,
  extraLibraries ? { },
  nativeBuildInputs ? [ ],
  postFixup ? "",
  passthru ? { },
  meta ? { },
  ...
}@arguments:

let
  resolved =
    import ./resolve.nix
      {
        inherit
          lib
          stdenv
          pkgs
          rocmPackages
          ;
      }
      {
        inherit plan gpuTargets extraLibraries;
        pythonVersion = python.pythonVersion;
      };
  p = resolved.plan;
in
buildPythonPackage (
  {
    inherit (p) pname version;
    format = "wheel";

    src =
      if p.source.url == null then
        fetchPypi (
          p.source.index
          // {
            format = "wheel";
            inherit (p.source) hash;
          }
        )
      else
        fetchurl { inherit (p.source) name url hash; };

    doCheck = true;

    # The dry run of the loader that will run it, on every file that was edited.
    installCheckPhase = ''
      runHook preInstallCheck
      relinkChecks
      runHook postInstallCheck
    '';
  }
  // builtins.removeAttrs arguments [
    "plan"
    "gpuTargets"
    "extraLibraries"
  ]
  // {
    nativeBuildInputs = [ patchelf ] ++ nativeBuildInputs;

    # The vendor's files are edited by the plan and by nothing else. GPU code does not survive strip.
    dontStrip = true;
    dontPatchELF = true;
    dontAutoPatchelf = true;

    # After fixupOutputHooks, whose --shrink-rpath would drop directories that only dlopen uses.
    postFixup = ''
      source ${./relink.sh}
      relinkSitePackages=${lib.escapeShellArg python.sitePackages}
      ${resolved.shell}
      relinkEdits
      ${postFixup}
    '';

    passthru = passthru // {
      relinkPlan = p;
    };

    meta = {
      inherit (p.about) description;
      platforms = [ "x86_64-linux" ];
      sourceProvenance = [ lib.sourceTypes.binaryNativeCode ];
    }
    // lib.optionalAttrs (p.about.homepage != null) { inherit (p.about) homepage; }
    // lib.optionalAttrs (p.about.license != null) {
      license = lib.getLicenseFromSpdxId p.about.license;
    }
    // meta;
  }
)
