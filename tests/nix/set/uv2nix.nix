# The packages of a uv.lock by the real uv2nix and pyproject.nix, with default.nix and its real autoPatchelfHook: `plain`
# as they are, `relinked` with relink's overlay. Nothing of the sources is part of this repository.
{
  sources, # a directory with checkouts: pyproject.nix, uv2nix, nixpkgs.lib, corepkgs
  set, # what default.nix gives
  tools, # JSON of conftest.py, and `uv`, `glibc`, `elftools`: a path, a version, a path
  workspace,
  overlay,
}:

let
  lib = import (sources + "/nixpkgs.lib/lib");
  scope = set;
  inherit (set) base;
  name = "python${builtins.replaceStrings [ "." ] [ "" ] tools.python}";
  # What uv2nix asks a Python and its C library.
  cc = scope.stdenv.cc // {
    libc = scope.stdenv.cc.libc // {
      version = tools.glibc;
    };
  };
  stdenv = set.stdenvNoCC // {
    inherit cc;
  };
  python = scope.python // {
    inherit stdenv;
    inherit (base.${name}) pname version;
    passthru = {
      inherit (base.${name}.passthru) implementation pythonVersion sourceVersion;
    };
  };
  program =
    name: text:
    scope.writeTextFile {
      inherit name text;
      executable = true;
      destination = "/bin/${name}";
    };
  # corepkgs' program, run by this machine's Python: it needs pyelftools.
  auto-patchelf = program "auto-patchelf" ''
    #!/bin/sh
    export PYTHONPATH=${tools.elftools}
    exec ${tools.program} ${
      scope.runCommand "auto-patchelf.py" { } ''
        sed s,@defaultBintools@,${bintools}, ${set.directory}/pkgs/auto-patchelf/source/auto-patchelf.py > $out
      ''
    } "$@"
  '';
  bintools = scope.runCommand "bintools" { } ''
    mkdir -p $out/nix-support
    echo ${lib.getLib cc.libc}/lib/ld-linux-x86-64.so.2 > $out/nix-support/dynamic-linker
    echo ${lib.getLib cc.libc} > $out/nix-support/orig-libc
  '';
  autoPatchelfHook = scope.makeSetupHook {
    name = "auto-patchelf-hook";
    propagatedBuildInputs = [
      auto-patchelf
      scope.patchelf
    ];
    substitutions.hostPlatform = stdenv.hostPlatform.config;
  } (set.directory + "/build-support/setup-hooks/auto-patchelf.sh");
  pkgs = scope // {
    inherit
      lib
      stdenv
      pkgs
      autoPatchelfHook
      ;
    inherit (set) rocmPackages fetchurl;
    uv = program "uv" ''
      #!/bin/sh
      exec ${tools.uv} "$@"
    '';
    ugrep = scope.installer; # nothing here runs it
    replaceVars = script: _: script;
    buildPackages = pkgs;
    callPackage = lib.callPackageWith pkgs;
    newScope = extra: lib.callPackageWith (pkgs // extra);
  };
  pyproject-nix = import (sources + "/pyproject.nix") { inherit lib; };
  uv2nix = import (sources + "/uv2nix") { inherit lib pyproject-nix; };
  project = uv2nix.lib.workspace.loadWorkspace { workspaceRoot = workspace; };
  manylinux = _: _: {
    pythonManylinuxPackages.manylinux2014 = [ (lib.getLib cc.cc) ];
  };
  plain = (pkgs.callPackage pyproject-nix.build.packages { inherit python; }).overrideScope (
    lib.composeExtensions manylinux (project.mkPyprojectOverlay { sourcePreference = "wheel"; })
  );
in
{
  inherit plain;
  relinked = plain.overrideScope overlay;
  deps = project.deps.default;
}
