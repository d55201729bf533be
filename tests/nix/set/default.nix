# A set of Python packages that is derived from nixpkgs: lib, stdenv's setup.sh, mk-python-derivation and hooks of corepkgs. What would
# take hours to build is taken from this machine: interpreter, compiler's libraries, ROCm, shell tools. Nothing of the set is part of
# this repository.
{
  set, # its directory
  tools, # JSON of conftest.py
  packages ? (_: { }), # more for the scope of Python packages
}:

let
  base = import set {
    system = "x86_64-linux";
  };
  inherit (base) config lib;
  machine = import ./machine.nix { inherit lib tools; };
  generic = import (set + "/stdenv/generic") {
    name = "stdenv-host";
    inherit config;
    shell = "/bin/bash";
    initialPath = [
      "/usr"
      "/"
    ];
    cc = null;
    hasCC = false;
    fetchurlBoot = throw "nothing is fetched here";
    preHook = "export STRIP=strip RANLIB=ranlib";
    inherit (base.stdenv) buildPlatform hostPlatform targetPlatform;
  };
  stdenv = generic // {
    cc = {
      inherit (machine) libc;
      cc = machine.compiler;
    };
  };
  trivial = import (set + "/build-support/trivial-builders") {
    inherit lib config;
    stdenv = generic;
    stdenvNoCC = generic;
    runtimeShell = "/bin/bash";
    jq = null;
    shellcheck-minimal = null;
    lndir = null;
  };
  version = tools.python;
  name = "python${builtins.replaceStrings [ "." ] [ "" ] version}";
  libc = lib.getLib machine.libc;
  python =
    generic.mkDerivation {
      pname = "python3";
      inherit version;
      # An installation is copied and run by the C library of the set.
      buildCommand = ''
        mkdir -p $out/bin $out/lib $out/nix-support
        cp -L ${tools.home}/bin/python${version} $out/bin/
        ln -s python${version} $out/bin/python3
        ln -s python3 $out/bin/python
        cp -L ${tools.home}/lib/libpython${version}.so* $out/lib/
        cp -r ${tools.home}/include $out/
        tar -C ${tools.home}/lib --exclude=site-packages --exclude=test --exclude=tests --exclude='config-*' \
          --exclude=__pycache__ --exclude='_tkinter*' -cf - python${version} | tar -C $out/lib -xf -
        mkdir $out/${python.sitePackages}
        for library in $(ldd $out/lib/python${version}/lib-dynload/*.so | sed -n 's/.* => \(.*\) (.*/\1/p' | sort -u); do
          case $library in */libc.so* | */libm.so* | */libpython*) ;; *) cp -L $library $out/lib/ ;; esac
        done
        chmod -R u+w $out
        ${tools.patchelf} --set-interpreter ${libc}/lib/ld-linux-x86-64.so.2 $out/bin/python${version}
        ${tools.patchelf} --set-rpath $out/lib:${libc}/lib \
          $out/bin/python${version} $(find $out/lib -name '*.so*' -type f)
        cat > $out/nix-support/setup-hook << 'END'
        addPythonPath() { addToSearchPathWithCustomDelimiter : PYTHONPATH $1/lib/python${version}/site-packages; }
        addEnvHooks "$hostOffset" addPythonPath
        END
      '';
      meta.platforms = lib.platforms.linux;
    }
    // {
      inherit stdenv;
      inherit (base.${name})
        isPy3k
        libPrefix
        pythonAtLeast
        pythonOlder
        pythonVersion
        sitePackages
        executable
        ;
      interpreter = "${python}/bin/python3";
      pythonOnBuildForHost = python;
      pkgs = scope;
    };
  empty = name: trivial.makeSetupHook { inherit name; } (builtins.toFile "hook.sh" "");
  installer = generic.mkDerivation {
    pname = "installer";
    version = "1";
    buildCommand = ''
      mkdir -p $out/${python.sitePackages} $out/nix-support
      cp -r ${tools.installer} $out/${python.sitePackages}/installer
      echo 'export PYTHONPATH='$out/${python.sitePackages}':"''${PYTHONPATH-}"' > $out/nix-support/setup-hook
    '';
  };
  pkgs =
    machine.extra
    // trivial
    // {
      inherit
        machine
        lib
        config
        stdenv
        pkgs
        ;
      inherit (machine) fetchurl patchelf rocmPackages;
      findutils = "/usr";
      coreutils = "/usr";
      unzip = empty "unzip";
      python3Packages = scope;
      callPackage = lib.callPackageWith pkgs;
    };
  hooks = import (set + "/python/hooks") scope { };
  # relink as this checkout has it, run by the interpreter of the tests.
  relink = trivial.writeTextFile {
    name = "relink";
    executable = true;
    destination = "/bin/relink";
    text = ''
      #!/bin/sh
      exec ${tools.relink} "$@"
    '';
    meta.mainProgram = "relink";
  };
  own = import ../../../default.nix { inherit pkgs relink; };
  scope =
    pkgs
    // hooks
    // {
      inherit (own) autoRelinkHook;
      inherit
        own
        python
        pkgs
        installer
        ;
      # Hooks that no wheel asks for have these for arguments.
      wheel = empty "wheel";
      build = empty "build";
      packaging = empty "packaging";
      setuptools = empty "setuptools";
      pip = empty "pip";
      callPackage = lib.callPackageWith scope;
      stdenvNoCC = generic;
      buildPackages = pkgs;
      namePrefix = "${name}-";
      makeWrapper = trivial.makeSetupHook {
        name = "make-wrapper";
        substitutions.shell = "/bin/bash";
      } (set + "/build-support/setup-hooks/make-wrapper.sh");
      wrapPython = scope.callPackage (set + "/python/wrap-python.nix") { };
      inherit (python) pythonAtLeast pythonOlder;
      ensureNewerSourcesForZipFilesHook = empty "newer-sources";
      nix-update-script = _: [ "nix-update" ];
      pythonCatchConflictsHook = empty "catch-conflicts";
      # For what hooks are made of.
      bootstrap = {
        inherit (scope) build packaging installer;
      };
      inherit
        (import (set + "/python/python-packages-base.nix") {
          inherit
            lib
            pkgs
            stdenv
            python
            ;
        } scope)
        buildPythonPackage
        buildPythonApplication
        requiredPythonModules
        toPythonModule
        ;
    }
    // packages scope;
in
scope
// {
  inherit base tools relink;
  directory = set;
}
