# relinkWheel: a Python package of a vendor's wheel, relinked to the package set's ROCm by autoRelinkHook.
#   relinkWheel { src = fetchurl { … }; buildInputs = with rocmPackages; [ clr rocblas ]; dependencies = [ numpy ]; }
# It takes all that buildPythonPackage takes, and the arguments of `extendDrvArgs` below; finalAttrs, too.
{
  lib,
  stdenv,
  autoRelinkHook,
  buildPythonPackage,
  pypaInstallHook,
  python,
  rocmPackages,
  runCommand,
  wheelUnpackHook,
}:

let
  minor = lib.toInt (lib.versions.minor python.pythonVersion);

  fileName = src: baseNameOf (src.name or (toString src));
  # The parts of a wheel's file name (PEP 427; PEP 425 for the tags).
  parts =
    src:
    let
      words = lib.splitString "-" (lib.removeSuffix ".whl" (fileName src));
      ofEnd = distance: lib.splitString "." (builtins.elemAt words (builtins.length words - distance));
    in
    {
      pname = lib.toLower (builtins.replaceStrings [ "_" "." ] [ "-" "-" ] (builtins.head words));
      version = builtins.replaceStrings [ "!" ] [ "-" ] (builtins.elemAt words 1);
      pythons = ofEnd 3;
      abis = ofEnd 2;
      platforms = ofEnd 1;
    };

  # An ABI of its own is for one Python; abi3 and none with py3N are for that one and newer ones.
  takes =
    abi: tag:
    let
      match = builtins.match "(cp|py)3([0-9]*)" tag;
      digits = builtins.elemAt match 1;
      least = if digits == "" then 0 else lib.toInt digits;
      newer = abi == "abi3" || builtins.head match == "py" || digits == "";
      known = [
        "none"
        "abi3"
        "cp3${toString minor}"
      ];
    in
    match != null
    && builtins.elem abi known
    && (if newer then minor >= least else minor == least);

  public = version: builtins.head (lib.splitString "+" version);
  misfitsOf =
    wheel: sameVersion: dependencies: locked: release:
    let
      runs = abi: builtins.any (takes abi) wheel.pythons;
      cpu = stdenv.hostPlatform.parsed.cpu.name;
      fits = tag: tag == "any" || builtins.match "(many)?linux[0-9_]*_${cpu}" tag != null;
      others = builtins.filter (package: public package.version != public wheel.version) sameVersion;
      plain = builtins.filter (
        package: package.pname or "" == "torch" && !(package.rocmSupport or true)
      ) dependencies;
    in
    lib.optional (!builtins.any runs wheel.abis)
      "it is for ${toString wheel.pythons} (${toString wheel.abis}), the package set has Python ${python.pythonVersion}; add the wheel for that Python to srcs"
    ++
      lib.optional (!builtins.any fits wheel.platforms)
        "it is for ${toString wheel.platforms}, the package set is for ${stdenv.hostPlatform.system}"
    ++ map (
      other:
      "it is ${wheel.version} and needs ${other.pname} of that version, the package set has ${other.version}; take the wheel of that release"
    ) others
    ++
      lib.optional (locked != null && locked.rocm or null != null && locked.rocm != lib.versions.major release)
        "its lock is for ROCm ${locked.rocm}, the package set has ${release}; write the lock anew, or take the wheel for that ROCm"
    ++ map (
      _:
      "torch of this package set was built without ROCm; take it from pkgsRocm, or set config.rocmSupport = true"
    ) plain;

  own = [
    "srcs"
    "rocm"
    "stub"
    "forward"
    "allowMissing"
    "gpus"
    "sameVersion"
    "lock"
    "strict"
  ];
  extendDrvArgs =
    finalAttrs:
    {
      # One wheel, or one for each Python: { "3.12" = fetchurl { … }; "3.13" = fetchurl { … }; }
      src ? srcs.${python.pythonVersion} or (builtins.head (builtins.attrValues srcs)),
      srcs ? { },
      # rocmPackages or a narrower scope (rocmPackages.gfx1100), or one derivation with all of ROCm (rocmSdk).
      rocm ? rocmPackages,
      stub ? [ ], # sonames, or [ "auto" ]
      forward ? [ ], # names that the wheel opens by dlopen, or [ "auto" ]
      allowMissing ? [ ], # globs of sonames
      # GPUs that have to be covered; null: those that ROCm was narrowed to. Of a family (rocmPackages.gfx11) its user has one, so of
      # several what is not covered is told.
      gpus ? null,
      # Packages that must be of the wheel's version: jaxlib for the plugins of JAX.
      sameVersion ? [ ],
      # What `relink nix --lock` wrote, or one for each Python: another plan of the build is told, and fails where `strict`.
      lock ? null,
      strict ? false,
      nativeBuildInputs ? [ ],
      buildInputs ? [ ],
      dependencies ? [ ],
      relinkFlags ? [ ],
      passthru ? { },
      meta ? { },
      ...
    }@arguments:
    let
      wheel = parts src;
      inputs = lib.optional (lib.isDerivation rocm) rocm ++ buildInputs;
      # Of the inputs first: the package may have been given another ROCm by `override`.
      narrowed = lib.concatMap (input: input.localGpuTargets or [ ]) inputs;
      scope = if narrowed == [ ] then rocm.clr.localGpuTargets or [ ] else narrowed;
      wanted = if gpus == null then scope else gpus;
      locked = if builtins.isAttrs lock then lock.${python.pythonVersion} or null else lock;
      release = rocm.clr.version or rocm.version;
      misfits = misfitsOf wheel sameVersion dependencies (
        if locked == null then null else lib.importJSON locked
      ) release;
      sentence = "relink: ${fileName src}: ${lib.concatStringsSep "; " misfits}";
    in
    {
      pname = arguments.pname or wheel.pname;
      version = arguments.version or wheel.version;
      src = if misfits == [ ] then src else throw sentence;
      # With format = "wheel" there would be an output with the vendor's wheel, not relinked.
      pyproject = false;
      nativeBuildInputs = [
        autoRelinkHook
        pypaInstallHook
        wheelUnpackHook
      ]
      ++ nativeBuildInputs;
      buildInputs = inputs;
      relinkStub = stub;
      relinkForward = forward;
      relinkAllowMissing = allowMissing;
      relinkGpus = wanted;
      relinkFlags =
        lib.optional (gpus == null && builtins.length wanted > 1) "--allow-isa-gap"
        ++ lib.optional (locked != null) "--lock=${locked}"
        ++ lib.optional strict "--lock-strict"
        ++ relinkFlags;
      passthru = {
        # What packages that depend on torch ask it.
        rocmSupport = true;
        cudaSupport = false;
      }
      // passthru
      // {
        inherit misfits;
        tests = {
          # Each library is loaded by a process of its own, with all of its symbols bound.
          load = runCommand "${finalAttrs.pname}-load" { nativeBuildInputs = [ python ]; } ''
            python3 ${./load.py} ${finalAttrs.finalPackage}/${python.sitePackages} ${builtins.storeDir} | tee $out
          '';
        }
        // passthru.tests or { };
      };
      meta = {
        broken = misfits != [ ];
        platforms = [ "x86_64-linux" ];
        sourceProvenance = [ lib.sourceTypes.binaryNativeCode ];
      }
      // meta;
    };
in
if lib ? extendMkDerivation then
  lib.extendMkDerivation {
    constructDrv = buildPythonPackage;
    excludeDrvArgNames = own;
    inherit extendDrvArgs;
  }
else
  # A lib without it has no finalAttrs in buildPythonPackage either.
  arguments:
  let
    more = extendDrvArgs {
      inherit (more) pname;
      finalPackage = package;
    } arguments;
    package = buildPythonPackage (builtins.removeAttrs arguments own // more);
  in
  package
