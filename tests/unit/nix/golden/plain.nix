# Written by relink 0.1.0 from demo-1.0-cp312-cp312-manylinux_2_34_x86_64.whl.
# The plan beside it is data; `relink nix` makes both anew.
{
  python312Packages,
  extraLibraries ? { },
  relinkWheel ? python312Packages.callPackage ./relink/relink-wheel.nix { },
}:

relinkWheel {
  plan = ./demo.json;
  inherit extraLibraries;
  gpuTargets = [
    "gfx1030"
    "gfx1100"
  ];

  dependencies = with python312Packages; [
    numpy
    packaging
  ];

  pythonImportsCheck = [ "demo" ];
}
