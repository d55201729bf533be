# Written by relink 0.2.0 from onnxruntime_rocm-1.22.2.post3-cp312-cp312-manylinux_2_34_x86_64.whl.
{
  lib, fetchPypi, relinkWheel, rocmPackages, coloredlogs, flatbuffers, numpy, packaging, protobuf,
  sympy,
}:

relinkWheel {
  src = fetchPypi {
    pname = "onnxruntime_rocm"; version = "1.22.2.post3"; dist = "cp312"; python = "cp312";
    abi = "cp312"; platform = "manylinux_2_34_x86_64"; format = "wheel";
    hash = "sha256-zNOy26Jv5zaH86KdEPzBVMc7I9W57Mk4uMBFRxdD/lI=";
  };
  buildInputs = with rocmPackages; [ clr hipblas hipfft miopen rocm-smi roctracer ];
  dependencies = [ coloredlogs flatbuffers numpy packaging protobuf sympy ];
  pythonImportsCheck = [ "onnxruntime" ];

  meta = {
    description = "Runtime accelerator for Machine Learning models (ROCm build)";
    homepage = "https://github.com/microsoft/onnxruntime";
    license = lib.licenses.mit;
    maintainers = [ ];
  };
}
