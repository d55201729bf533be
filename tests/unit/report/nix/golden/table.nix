# Written by relink 0.1.0 from demo-1.0-py3-none-any.whl.
# The plan beside it is data; `relink nix` makes all anew.
# No library of a store was at hand when it was made: the build's dry run is the proof.
# librccl.so.1: where nobody has it, a stub whose functions refuse.
{
  lib,
  callPackage,
  relinkWheel ? callPackage ./relink/relink-wheel.nix { },
  # nixpkgs has none that relink knows: hipsparselt, with lib/libhipsparselt.so.0
  extraLibraries ? { },

  # dependencies
  numpy,
  jaxlib,
  python,

  # of the vendor alone: `relink nix` makes a package of it in the same way
  jax-rocm7-pjrt,
}:

relinkWheel {
  plan = ./demo.json;
  inherit extraLibraries;

  dependencies = [
    python.pkgs."3to2"
    numpy
    jax-rocm7-pjrt
  ];

  sameVersion = [
    jaxlib
    jax-rocm7-pjrt
  ];

  pythonImportsCheck = [ "demo" ];

  meta = {
    description = "With \"quotes\"";
    license = [
      lib.licenses.mit
      lib.licenses.asl20
      (lib.getLicenseFromSpdxId "0BSD")
    ];
    maintainers = [ ];
  };
}
