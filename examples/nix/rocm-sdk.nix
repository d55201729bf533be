# ROCm of pip as one package: wheels of rocm-sdk in one site-packages, since their libraries find each other by $ORIGIN across them.
#   buildInputs = [ (callPackage ./rocm-sdk.nix { wheels = [ … ]; }) ];
{
  lib,
  stdenv,
  patchelf,
  unzip,
  # Fetched: rocm-sdk-core, rocm-sdk-libraries, and rocm-sdk-device-GPU for each GPU.
  wheels,
  version,
}:

stdenv.mkDerivation {
  pname = "rocm-sdk";
  inherit version wheels;

  nativeBuildInputs = [
    patchelf
    unzip
  ];

  # Of the system the libraries take the C++ runtime alone: their search paths end there.
  buildCommand = ''
    site=$out/lib/python3/site-packages
    mkdir -p "$site" $out/nix-support
    for wheel in $wheels; do
      unzip -q -o "$wheel" -d "$site"
    done
    for directory in "$site"/*/lib "$site"/*/lib/{host-math,llvm,rocm_sysdeps}/lib; do
      for library in "$directory"/*.so*; do
        if [ -f "$library" ]; then
          chmod u+w "$library"
          patchelf --add-rpath ${lib.getLib stdenv.cc.cc}/lib "$library"
        fi
      done
    done
    echo "relinkPrefixes+=(--prefix $site)" > $out/nix-support/setup-hook
  '';

  # GPU code does not survive strip.
  dontStrip = true;

  meta = {
    description = "ROCm of the wheels that AMD's index for pip has";
    homepage = "https://github.com/ROCm/TheRock";
    license = lib.licenses.mit;
    sourceProvenance = [ lib.sourceTypes.binaryNativeCode ];
    platforms = [ "x86_64-linux" ];
  };
}
