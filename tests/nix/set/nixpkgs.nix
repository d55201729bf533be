# The set as a nixpkgs that flakes and the real pyproject.nix take, with its real autoPatchelfHook. Nothing of the sources is part of
# this repository.
{
  sources, # a directory with checkouts, nixpkgs.lib among them
  set, # what default.nix gives
}:

let
  lib = import (sources + "/nixpkgs.lib/lib");
  scope = set;
  # JSON of stores.py, and `uv`, `glibc`, `elftools`, `program`: a path, a version, two paths
  inherit (set) base tools;
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
  # relink of the tests: the packages that it is made of are not in the set.
  pythonPackages = scope // {
    callPackage =
      path: arguments:
      if baseNameOf (toString path) == "relink.nix" then set.relink else scope.callPackage path arguments;
  };
  pkgs = scope // {
    inherit
      lib
      stdenv
      pkgs
      autoPatchelfHook
      ;
    uv = program "uv" ''
      #!/bin/sh
      exec ${tools.uv} "$@"
    '';
    ugrep = scope.installer; # nothing here runs it
    replaceVars = script: _: script;
    buildPackages = pkgs;
    callPackage = lib.callPackageWith pkgs;
    newScope = extra: lib.callPackageWith (pkgs // extra);
    pythonManylinuxPackages.manylinux2014 = [ (lib.getLib cc.cc) ];
    nixfmt-tree = scope.installer;
    mkShell = { packages }: scope.runCommand "shell" { inherit packages; } "echo $packages > $out";
    python312 = python // {
      withPackages =
        choose: scope.runCommand "env" { paths = choose pythonPackages; } "echo $paths > $out";
    };
    python3Packages = pythonPackages;
    python312Packages = pythonPackages;
    # As nixpkgs does it, but for packages of the overlay that others of the set ask for.
    extend =
      overlay:
      let
        added = overlay extended pkgs;
        more = builtins.foldl' (done: extension: done // extension done done) pythonPackages (
          added.pythonPackagesExtensions or [ ]
        );
        extended =
          pkgs
          // added
          // {
            python312Packages = more // {
              callPackage = lib.callPackageWith more;
            };
          };
      in
      extended;
  };
in
pkgs
