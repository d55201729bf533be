# For pip in a virtual environment instead of a package: ROCm in one place, relink on PATH.
#   relink WHEEL --prefix $ROCM -o dist --gc-root .venv/.relink/gcroots && pip install dist/*.whl
{
  pkgs ? import <nixpkgs> { },
  relink ? (import ../.. { inherit pkgs; }).relink,
}:

let
  rocm = pkgs.symlinkJoin {
    name = "rocm";
    paths = with pkgs.rocmPackages; [
      clr
      hipblas
      hipfft
      miopen
      rocm-smi
      roctracer
    ];
  };
in
pkgs.mkShell {
  packages = [
    relink
    pkgs.python312
  ];
  ROCM = rocm;
}
