# Written by relink 0.1.0 from demo-1.0-cp312-cp312-manylinux_2_34_x86_64.whl.
# The plan beside it is data; `relink nix` makes all anew.
{
  lib,
  callPackage,
  relinkWheel ? callPackage ./relink/relink-wheel.nix { },
  extraLibraries ? { },
  gpuTargets ? [
    "gfx1030"
    "gfx1100"
  ],

  # dependencies
  numpy,
  packaging,
}:

relinkWheel {
  plan = ./demo.json;
  inherit extraLibraries gpuTargets;

  dependencies = [
    numpy
    packaging
  ];

  pythonImportsCheck = [ "demo" ];

  meta = {
    description = "Demonstration";
    homepage = "https://example.org";
    changelog = "https://example.org/changes";
    license = lib.licenses.mit;
    maintainers = [ ];
    mainProgram = "demo";
  };
}
