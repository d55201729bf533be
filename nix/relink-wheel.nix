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
  pypaInstallHook,
  python,
  rocmPackages,
  wheelUnpackHook,
}:

let
  wheelsOf = lib.mapAttrsToList (_: plan: (builtins.fromJSON (builtins.readFile plan)).source.name);
in
{
  # One plan, or one for each Python: { "3.12" = ./name-cp312.json; }
  plan ?
    plans.${python.pythonVersion}
      or (throw "relink: there is a plan for Python ${lib.concatStringsSep ", " (builtins.attrNames plans)}, and this package set has Python ${python.pythonVersion}; make the package anew with the wheel for that, too: `relink nix ${lib.concatStringsSep " " (wheelsOf plans)} WHEEL -o DIR`"),
  plans ? { },
  gpuTargets ? null,
  extraLibraries ? { },
  # One package that has all of ROCm in lib/, instead of rocmPackages.
  rocm ? null,
  # Packages that must be of the wheel's version: jaxlib for the plugins of JAX.
  sameVersion ? [ ],
  # The name of the package of nixpkgs that it takes the place of, in METADATA, too.
  provides ? null,
  dependencies ? [ ],
  nativeBuildInputs ? [ ],
  postFixup ? "",
  postPhases ? [ ],
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
        inherit
          plan
          gpuTargets
          extraLibraries
          rocm
          ;
        pythonVersion = python.pythonVersion;
        # Those that the package depends on come first: what is imported must be what was linked with.
        pythonPackages =
          python.pkgs or { }
          // builtins.listToAttrs (
            map (package: lib.nameValuePair (package.pname or "") package) dependencies
          );
      };
  p = resolved.plan;
  public = version: builtins.head (lib.splitString "+" version);
  others = builtins.filter (package: public package.version != public p.version) sameVersion;
  # Stock torch of nixpkgs has no ROCm; with pkgsRocm or config.rocmSupport it has.
  plain = builtins.filter (
    package: package.pname or "" == "torch" && !(package.rocmSupport or true)
  ) dependencies;
in
assert
  others == [ ]
  || throw "relink: ${p.source.name}: it is ${p.version} and needs ${(builtins.head others).pname} of that version, the package set has ${(builtins.head others).version}; take the wheel of that release and make the package anew: ${resolved.anewWith "WHEEL"}";
assert
  p.rocm == null
  || plain == [ ]
  || throw "relink: ${p.source.name}: torch of this package set was built without ROCm; take it from pkgsRocm, or set config.rocmSupport = true";
buildPythonPackage (
  {
    inherit (p) version;
    pname = if provides == null then p.pname else provides;
    # With format = "wheel" there would be an output with the vendor's wheel, unpatched.
    pyproject = false;

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
    "plans"
    "gpuTargets"
    "extraLibraries"
    "rocm"
    "sameVersion"
    "postPhases"
    "provides"
  ]
  // {
    nativeBuildInputs = [
      patchelf
      pypaInstallHook
      wheelUnpackHook
    ]
    ++ nativeBuildInputs;

    # The vendor's files are edited by the plan and by nothing else. GPU code does not survive strip.
    dontStrip = true;
    dontPatchELF = true;
    dontAutoPatchelf = true;

    # After the install check and everything else.
    postPhases = [ "relinkSealedPhase" ] ++ postPhases;

    # After fixupOutputHooks, whose --shrink-rpath would drop directories that only dlopen uses.
    postFixup = ''
      source ${./relink.sh}
      relinkSitePackages=${lib.escapeShellArg python.sitePackages}
      ${resolved.shell}
      relinkEdits
      ${lib.optionalString (provides != null) "relinkProvide ${lib.escapeShellArg provides}"}
      ${postFixup}
    '';

    passthru =
      # What packages that depend on torch ask it.
      lib.optionalAttrs (p.rocm != null) {
        rocmSupport = true;
        cudaSupport = false;
      }
      // passthru
      // {
        relinkPlan = p;
        # For a development shell: shellHook = package.relinkShadowCheck;
        relinkShadowCheck = resolved.shadowCheck;
      };

    meta = {
      platforms = [ "x86_64-linux" ];
      sourceProvenance = [ lib.sourceTypes.binaryNativeCode ];
    }
    // meta;
  }
)
