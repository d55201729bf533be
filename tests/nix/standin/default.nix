# A stand-in for nixpkgs: as much of its interface as relink's Nix files use, made of the machine's own compiler and C library.
# It is no proof that they work with a real nixpkgs.
{
  tools ? {
    # JSON of conftest.py: the compiler, patchelf, and the files of the C library and of libstdc++
    cc = "cc";
    patchelf = "/nowhere/patchelf";
    python = "3.11";
    libc = [ ];
    gcc = [ ];
    rocm = { };
    extra = { };
  },
  rocmVersion ? "7.2.4",
  localGpuTargets ? null,
  without ? [ ],
}:

let
  lib = import ./lib.nix;

  mkDerivation =
    attributes:
    let
      plain = builtins.removeAttrs attributes [
        "passthru"
        "meta"
      ];
      drv = derivation (
        {
          name = "${attributes.pname}-${attributes.version}";
          system = "x86_64-linux";
          builder = "/bin/bash";
          args = [
            "-e"
            ./setup.sh
          ];
        }
        // plain
      );
    in
    drv // { meta = attributes.meta or { }; } // (attributes.passthru or { });

  copies =
    name: version: files:
    mkDerivation {
      pname = name;
      inherit version;
      inherit files;
      buildCommand = ''
        mkdir -p $out/lib
        for file in $files; do cp -L --no-preserve=mode $file $out/lib/; done
        chmod 755 $out/lib/*; :
      '';
    };

  libc = copies "glibc" "2.0" tools.libc;
  gcc = copies "gcc" "13.0" tools.gcc;
  stdenv = {
    inherit mkDerivation;
    cc = {
      inherit libc;
      cc = gcc;
    };
  };

  # One package of ROCm: { "libfoo.so.1" = { source = "C"; needs = [ "other attribute" ]; links = [ "libbar.so.1" ]; }; }
  rocmPackage =
    name: libraries:
    mkDerivation {
      pname = name;
      version = rocmVersion;
      inherit (tools) cc;
      needs = lib.unique (
        builtins.concatMap (one: map (need: rocmPackages.${need}) one.needs) (builtins.attrValues libraries)
      );
      sonames = builtins.attrNames libraries;
      sources = map (one: one.source) (builtins.attrValues libraries);
      passAsFile = [ "sources" ];
      buildCommand = ''
        mkdir -p $out/lib
        path=; link=
        for need in $needs; do path=$path:$need/lib; link="$link $need/lib/*.so*"; done
        ${lib.concatMapStrings (soname: ''
          printf '%s' ${lib.escapeShellArg libraries.${soname}.source} > source.c
          $cc -shared -fPIC -nostdlib -O1 -Wl,--no-as-needed -Wl,--allow-shlib-undefined -Wl,-soname,${soname} \
            ''${path:+-Wl,--enable-new-dtags,-rpath,''${path#:}} source.c $link -o $out/lib/${soname}
        '') (builtins.attrNames libraries)}:
      '';
    };
  all = builtins.mapAttrs rocmPackage tools.rocm;
  rocmPackages = builtins.removeAttrs (
    all
    // {
      clr = (all.clr or { outPath = "/nowhere"; }) // {
        version = rocmVersion;
        inherit localGpuTargets;
      };
    }
  ) without;

  patchelf = mkDerivation {
    pname = "patchelf";
    version = "0";
    program = tools.patchelf;
    buildCommand = "mkdir -p $out/bin; ln -s $program $out/bin/patchelf; :";
  };

  fetchurl =
    {
      name,
      url,
      hash,
    }:
    derivation {
      inherit name url;
      system = "x86_64-linux";
      builder = "/bin/bash";
      args = [
        "-c"
        "PATH=/usr/bin:/bin; cp \"\${url#file://}\" $out; :"
      ];
      outputHash = hash;
      outputHashMode = "flat";
      outputHashAlgo = null;
    };

  callWith =
    scope: target: overrides:
    let
      function = if builtins.isFunction target then target else import target;
      result = function (
        builtins.intersectAttrs (builtins.functionArgs function) scope // overrides
      );
    in
    if builtins.isAttrs result then result // { override = more: callWith scope target (overrides // more); } else result;

  buildPythonPackage =
    attributes:
    mkDerivation (
      builtins.removeAttrs attributes [
        "dependencies"
        "build-system"
      ]
      // {
        sitePackages = "lib/python${tools.python}/site-packages";
      }
    );
  named = pname: mkDerivation { inherit pname; version = "0"; buildCommand = "mkdir $out; :"; };
  names = [
    "auditwheel"
    "flatbuffers"
    "hatchling"
    "isal"
    "numpy"
    "packaging"
    "protobuf"
    "pyelftools"
    "rich"
    "sympy"
    "torch"
    "typer"
    "wheel"
    "zstandard"
  ];
  pythonPackages =
    version:
    let
      scope =
        pkgs
        // builtins.listToAttrs (map (name: { inherit name; value = named name; }) names)
        // {
          inherit buildPythonPackage;
          buildPythonApplication = buildPythonPackage;
          python = {
            pythonVersion = version;
            sitePackages = "lib/python${version}/site-packages";
          };
          callPackage = callWith scope;
        };
    in
    scope;

  pkgs = {
    inherit
      lib
      stdenv
      patchelf
      fetchurl
      rocmPackages
      pkgs
      ;
    callPackage = callWith pkgs;
    nixfmt-tree = named "nixfmt-tree";
    writeText =
      name: text:
      mkDerivation {
        pname = name;
        version = "0";
        inherit text;
        passAsFile = [ "text" ];
        buildCommand = "cp $textPath $out; :";
      };
    runCommand =
      pname: attributes: buildCommand:
      mkDerivation (attributes // { inherit pname buildCommand; version = "0"; });
    makeSetupHook =
      {
        name,
        propagatedBuildInputs ? [ ],
        substitutions ? { },
        passthru ? { },
      }:
      script:
      mkDerivation (
        substitutions
        // {
          pname = name;
          version = "0";
          inherit passthru script;
          inputs = propagatedBuildInputs;
          buildCommand = ''
            mkdir -p $out/nix-support
            sed ${
              lib.concatMapStrings (key: "-e s,@${key}@,\$${key},g ") (builtins.attrNames substitutions)
            } $script > $out/nix-support/setup-hook
            echo $inputs > $out/nix-support/propagated-build-inputs; :
          '';
        }
      );
    python3Packages = pythonPackages tools.python;
    python311Packages = pythonPackages "3.11";
    python312Packages = pythonPackages "3.12";
    python313Packages = pythonPackages "3.13";
  }
  // builtins.mapAttrs (name: files: copies name "1.0" files) tools.extra;
in
pkgs
