# What `relink nix onnxruntime_rocm-1.22.2.post3-cp312-….whl --gpu gfx1030 -o .` writes, but for the `dependencies`.
{
  python312Packages,
  extraLibraries ? { },
  relinkWheel ? python312Packages.callPackage ./relink/relink-wheel.nix { },
}:

relinkWheel {
  plan = ./onnxruntime-rocm.json;
  inherit extraLibraries;
  gpuTargets = [ "gfx1030" ];

  # The wheel's METADATA names none; these are upstream's.
  dependencies = with python312Packages; [
    coloredlogs
    flatbuffers
    numpy
    packaging
    protobuf
    sympy
  ];

  pythonImportsCheck = [ "onnxruntime" ];
}
