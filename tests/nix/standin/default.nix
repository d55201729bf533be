# A stand-in for nixpkgs: as much of its interface as relink's Nix files use, made of the machine's own compiler and C library.
# It is no proof that they work with a real nixpkgs.
{
  tools ? {
    # JSON of conftest.py: the compiler, patchelf, the index's directory, and the files of packages
    cc = "cc";
    patchelf = "/nowhere/patchelf";
    python = "3.11";
    index = "/nowhere";
    libc = { };
    gcc = { }; # libgcc_s.so.1 among them goes to an output of its own, as it does in nixpkgs
    rocm = { };
    copied = { };
    extra = { };
  },
  rocmVersion ? tools.rocmVersion or "7.2.4",
  localGpuTargets ? null,
  gpuTargets ? null, # of nixpkgs' clr; null stands for a HIP of another origin
  system ? "x86_64-linux",
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
      more = {
        inherit (attributes) pname version;
        meta = attributes.meta or { };
      }
      // (attributes.passthru or { });
      # An output that is asked for by name is taken as it is (`lib.getLib`).
      outputs = builtins.listToAttrs (
        map (name: {
          inherit name;
          value = drv.${name} // more // outputs // { outputSpecified = true; };
        }) (attributes.outputs or [ "out" ])
      );
    in
    drv // more // outputs;

  # Libraries of the machine: { files."libfoo.so.1" = "/path"; needs = [ "attribute" ]; }, found by what needs them where
  # `needs` is there, as nixpkgs' libraries are.
  copies =
    name: version:
    {
      files,
      needs ? [ ],
    }:
    mkDerivation {
      pname = name;
      inherit version;
      patchelf = if needs == [ ] then "" else tools.patchelf;
      needed = map (
        need: if need == "gcc" then compiler.lib else pkgs.${need} or rocmPackages.${need}
      ) needs;
      buildCommand = ''
        mkdir -p $out/lib
        ${lib.concatMapStrings (file: ''
          mkdir -p "$(dirname $out/lib/${file})"
          cp -L --no-preserve=mode ${lib.escapeShellArg files.${file}} $out/lib/${file}
        '') (builtins.attrNames files)}
        chmod -R u+wx $out
        path=
        for directory in $(find $out/lib -type d) $needed; do path=$path:''${directory%/lib}/lib; done
        if [ -n "$patchelf" ]; then
          find $out/lib -type f -exec "$patchelf" --set-rpath "''${path#:}" {} +
        fi; :
      '';
    };

  libc = copies "glibc" "2.0" { files = tools.libc; };
  # As in nixpkgs: the compiler, its libraries, and libgcc_s apart, with a link to it beside the libraries.
  compiler = mkDerivation {
    pname = "gcc";
    version = "15.2.0";
    outputs = [
      "out"
      "lib"
      "libgcc"
    ];
    buildCommand = ''
      mkdir -p $out $lib/lib $libgcc/lib
      ${lib.concatMapStrings (file: ''
        cp -L --no-preserve=mode ${lib.escapeShellArg tools.gcc.${file}} $lib/lib/${file}
      '') (builtins.attrNames tools.gcc)}
      if [ -e $lib/lib/libgcc_s.so.1 ]; then
        mv $lib/lib/libgcc_s.so.1 $libgcc/lib/
        ln -s $libgcc/lib/libgcc_s.so.1 $lib/lib/
      fi; :
    '';
  };
  stdenv = {
    inherit mkDerivation;
    hostPlatform.system = system;
    cc = {
      inherit libc;
      cc = compiler;
    };
  };

  # One package of ROCm: { "libfoo.so.1" = { source = "C"; needs = [ "other attribute" ]; finds = [ "one that is dlopened" ]; }; }
  rocmPackage =
    name: libraries:
    mkDerivation {
      pname = name;
      version = rocmVersion;
      inherit (tools) cc;
      needs = lib.unique (
        builtins.concatMap (one: map (need: rocmPackages.${need}) one.needs) (builtins.attrValues libraries)
      );
      runtime = [
        libc
        compiler.lib
      ]
      ++ builtins.concatMap (one: map (name: rocmPackages.${name}) (one.finds or [ ])) (
        builtins.attrValues libraries
      );
      buildCommand = ''
        mkdir -p $out/lib
        path=; link=
        for need in $needs; do path=$path:$need/lib; link="$link $need/lib/*.so*"; done
        for need in $runtime; do path=$path:$need/lib; done
        ${
          lib.concatMapStrings (soname: ''
            printf '%s' ${lib.escapeShellArg libraries.${soname}.source} > source.c
            $cc -shared -fPIC -nostdlib -O1 -Wl,--no-as-needed -Wl,--allow-shlib-undefined -Wl,-soname,${soname} \
              -Wl,--enable-new-dtags,-rpath,''${path#:} source.c $link -o $out/lib/${soname}
          '') (builtins.attrNames libraries)
        }:
      '';
    };
  all =
    builtins.mapAttrs rocmPackage tools.rocm
    // builtins.mapAttrs (name: copies name rocmVersion) tools.copied;
  rocmPackages = builtins.removeAttrs (
    all
    // {
      clr =
        (all.clr or { outPath = "/nowhere"; })
        // {
          version = rocmVersion;
        }
        # nixpkgs' has the attribute only where it was built for some GPUs.
        // lib.optionalAttrs (localGpuTargets != null) { inherit localGpuTargets; }
        // lib.optionalAttrs (gpuTargets != null) { inherit gpuTargets; };
      rocm-thunk = throw "'rocm-thunk' has been removed. It's now part of the ROCm runtime.";
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

  # Its address is made of the parts; here, a file of the same name in a directory.
  fetchPypi =
    {
      pname,
      version,
      format,
      dist,
      python,
      abi,
      platform,
      hash,
    }:
    assert format == "wheel" && dist != "";
    let
      name = "${pname}-${version}-${python}-${abi}-${platform}.whl";
    in
    fetchurl {
      inherit name hash;
      url = "file://${tools.index}/${name}";
    };

  callWith =
    scope: target: overrides:
    let
      function = if builtins.isFunction target then target else import target;
      result = function (builtins.intersectAttrs (builtins.functionArgs function) scope // overrides);
    in
    if builtins.isAttrs result then
      result // { override = more: callWith scope target (overrides // more); }
    else
      result;

  buildPythonPackage =
    python: attributes:
    mkDerivation (
      builtins.removeAttrs attributes [
        "dependencies"
        "build-system"
      ]
      // {
        inherit (python) sitePackages;
      }
    );
  named =
    pname:
    mkDerivation {
      inherit pname;
      version = "0";
      buildCommand = "mkdir $out; :";
    };
  names = [
    "auditwheel"
    "coloredlogs"
    "fastrlock"
    "flatbuffers"
    "flit-core"
    "hatchling"
    "isal"
    "numpy"
    "packaging"
    "protobuf"
    "pyelftools"
    "rich"
    "setuptools"
    "setuptools-scm"
    "sympy"
    "torch"
    "typer"
    "wheel"
    "zlib-ng"
    "zstandard"
  ];
  pythonPackages = version: pythonPackagesWith version (_: _: { });
  # With an extension, as nixpkgs' overrideScope and pythonPackagesExtensions give it.
  pythonPackagesWith =
    version: extension:
    let
      # Two outputs, as nixpkgs' has them; what links with it is found in the first.
      python =
        mkDerivation {
          pname = "python3";
          version = "${version}.1";
          outputs = [
            "out"
            "debug"
          ];
          buildCommand = "mkdir $out $debug; :";
        }
        // {
          pythonVersion = version;
          sitePackages = "lib/python${version}/site-packages";
        };
      scope = base // extension scope base;
      base =
        pkgs
        // builtins.listToAttrs (
          map (name: {
            inherit name;
            value = named name // {
              overridePythonAttrs = more: named name // more;
            };
          }) names
        )
        // {
          inherit python;
          buildPythonPackage = buildPythonPackage python;
          buildPythonApplication = buildPythonPackage python;
          callPackage = callWith scope;
          overrideScope = pythonPackagesWith version;
          pypaInstallHook = named "pypa-install-hook";
          wheelUnpackHook = named "wheel-unpack-hook";
          jaxlib = named "jaxlib" // {
            version = tools.jaxlib or "0";
          };
        };
    in
    scope;

  pkgs = {
    inherit
      lib
      stdenv
      patchelf
      fetchPypi
      fetchurl
      rocmPackages
      pkgs
      ;
    callPackage = callWith pkgs;
    unzip = named "unzip";
    nixfmt-tree = named "nixfmt-tree";
    mkShell =
      attributes:
      mkDerivation (
        {
          pname = "shell";
          version = "0";
          buildCommand = "mkdir $out; :";
        }
        // attributes
      );
    symlinkJoin =
      { name, paths }:
      mkDerivation {
        pname = name;
        version = "0";
        inherit paths;
        buildCommand = ''
          mkdir -p $out/lib
          for path in $paths; do ln -s $path/lib/* $out/lib/; done; :
        '';
      };
    python312 = named "python3" // {
      withPackages =
        choose:
        mkDerivation {
          pname = "python3";
          version = "3.12";
          paths = choose (pythonPackages "3.12");
          buildCommand = "echo $paths > $out; :";
        };
    };
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
      mkDerivation (
        attributes
        // {
          inherit pname buildCommand;
          version = "0";
        }
      );
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
  // {
    inherit libc;
    gcc = compiler.lib; # what the tests' stores link with; nixpkgs' is the wrapped compiler
  }
  // builtins.mapAttrs (name: copies name "1.0") tools.extra;
in
pkgs
