# ROCm as pip installs it, as one derivation for `relinkWheel { rocm = … }`, or in the place of rocmPackages (`package.override`): the
# wheels of rocm-sdk side by side in one site-packages, since their libraries find each other by $ORIGIN across them. Of the system
# they take the C++ runtime, which gets an entry behind.
{
  lib,
  stdenv,
  patchelf,
  unzip,
}:

{
  version,
  # rocm-sdk-core, rocm-sdk-libraries, and rocm-sdk-device-GPU for each GPU.
  wheels,
  # What the device packages, or the family of the libraries, are for.
  gpuTargets ? [ ],
  # The directories in site-packages that have libraries.
  directories ? [
    "_rocm_sdk_core/lib"
    "_rocm_sdk_libraries/lib"
    "_rocm_sdk_core/lib/host-math/lib"
    "_rocm_sdk_core/lib/llvm/lib"
    "_rocm_sdk_core/lib/rocm_sysdeps/lib"
  ],
}:

let
  known = (lib.importTOML ../profiles/rocm/rocm.toml).component;
  names = lib.unique (
    map (row: lib.removePrefix "rocmPackages." row.attribute) (
      builtins.filter (row: lib.hasPrefix "rocmPackages." (row.attribute or "")) known
    )
  );
  sdk = stdenv.mkDerivation {
    pname = "rocm-sdk";
    inherit version;

    nativeBuildInputs = [
      patchelf
      unzip
    ];

    inherit wheels directories;
    runtime = "${lib.getLib stdenv.cc.cc}/lib";

    buildCommand = ''
      site=$out/lib/python3/site-packages
      mkdir -p "$site"
      for wheel in $wheels; do
        unzip -q -o "$wheel" -d "$site"
      done
      for directory in $directories; do
        for library in "$site/$directory"/*.so*; do
          if [ -f "$library" ]; then
            chmod u+w "$library"
            patchelf --force-rpath --set-rpath "$(patchelf --print-rpath "$library"):$runtime" "$library"
          fi
        done
      done
      mkdir $out/nix-support
      echo "relinkPrefixes+=(--prefix $site)" > $out/nix-support/setup-hook
    '';

    # GPU code does not survive strip.
    dontStrip = true;

    # As rocmPackages.clr says it.
    passthru.localGpuTargets = gpuTargets;

    meta = {
      description = "ROCm of the wheels that AMD's pip index has";
      platforms = [ "x86_64-linux" ];
      sourceProvenance = [ lib.sourceTypes.binaryNativeCode ];
    };
  };
in
sdk // lib.genAttrs names (_: sdk)
