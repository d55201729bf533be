# Written by relink 0.1.0 from demo-1.0-py3-none-any.whl.
# The plan beside it is data; `relink nix` makes both anew.
# No library of a store was at hand when it was made: the build's dry run is the proof.
{
  python3Packages,
  # nixpkgs has none that relink knows: hipsparselt, with lib/libhipsparselt.so.0
  extraLibraries ? { },
  relinkWheel ? python3Packages.callPackage ./relink/relink-wheel.nix { },
}:

relinkWheel {
  plan = ./demo.json;
  inherit extraLibraries;

  # Of the vendor alone; make a package of it in the same way and add it: jax-rocm7-pjrt
  dependencies = [
    python3Packages."3to2"
    python3Packages.numpy
  ];

  pythonImportsCheck = [ "demo" ];
}
