# What `relink nix onnxruntime_rocm-1.22.2.post3-cp312-….whl --gpu gfx1030 -o .` writes.
{
  lib,
  callPackage,
  relinkWheel ? callPackage ./relink/relink-wheel.nix { },
  extraLibraries ? { },
  gpuTargets ? [ "gfx1030" ],

  # dependencies
  coloredlogs,
  flatbuffers,
  numpy,
  packaging,
  protobuf,
  sympy,
}:

relinkWheel {
  plan = ./onnxruntime-rocm.json;
  inherit extraLibraries gpuTargets;

  dependencies = [
    coloredlogs
    flatbuffers
    numpy
    packaging
    protobuf
    sympy
  ];

  pythonImportsCheck = [ "onnxruntime" ];

  meta = {
    description = "Runtime accelerator for Machine Learning models (ROCm build)";
    homepage = "https://github.com/microsoft/onnxruntime";
    license = lib.licenses.mit;
    maintainers = [ ];
    mainProgram = "onnxruntime_test";
  };
}
