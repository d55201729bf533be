# This machine's own compiler, C library and libraries of ROCm as packages, in the form that nixpkgs has: one output for each, libgcc
# split off, and each found by what needs it.
{ lib, tools }:

let
  make =
    attributes:
    let
      made = derivation (
        {
          name = "${attributes.pname}-${attributes.version}";
          system = "x86_64-linux";
          builder = "/bin/bash";
          PATH = "/usr/bin:/bin";
          args = [
            "-ec"
            "eval \"$buildCommand\"; :" # not exec'ed: Nix would end what closes its output
          ];
        }
        // attributes
      );
      named = {
        inherit (attributes) pname version;
      };
      # An output that is asked for by name is taken as it is (`lib.getDev`).
      outputs = lib.genAttrs (attributes.outputs or [ ]) (
        name: made.${name} // named // { outputSpecified = true; }
      );
    in
    made // named // outputs;

  # { files."libfoo.so.1" = "/path"; needs = [ "attribute" ]; }
  copies =
    name: version:
    {
      files,
      needs ? [ ],
    }:
    make {
      pname = name;
      inherit version;
      patchelf = if needs == [ ] then "" else tools.patchelf;
      needed = map (
        need:
        if need == "gcc" then
          compiler.lib
        else if need == "libc" then
          libc
        else
          extra.${need} or rocm.${need}
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
        fi
      '';
    };

  # { "libfoo.so.1" = { source = "C"; needs = [ "other attribute" ]; }; }
  compiled =
    name: libraries:
    make {
      pname = name;
      version = tools.rocmVersion;
      inherit (tools) cc;
      needs = lib.unique (
        builtins.concatMap (one: map (need: rocm.${need}) one.needs) (builtins.attrValues libraries)
      );
      runtime = [
        libc
        compiler.lib
      ];
      buildCommand = ''
        mkdir -p $out/lib
        path=; link=
        for need in $needs; do path=$path:$need/lib; link="$link $need/lib/*.so*"; done
        for need in $runtime; do path=$path:$need/lib; done
        ${lib.concatMapStrings (soname: ''
          printf '%s' ${lib.escapeShellArg libraries.${soname}.source} > source.c
          $cc -shared -fPIC -nostdlib -O1 -Wl,--no-as-needed -Wl,--allow-shlib-undefined -Wl,-soname,${soname} \
            -Wl,--enable-new-dtags,-rpath,''${path#:} source.c $link -o $out/lib/${soname}
        '') (builtins.attrNames libraries)}
      '';
    };

  # The loader of nixpkgs has its own directory as the only default one, and no cache. Names in the file of another distribution's are
  # replaced by others of their length, the first by that of a link to the package's lib.
  libc =
    let
      plain = copies "glibc" "2.0" { files = tools.libc; };
    in
    if tools.link == "" then
      plain
    else
      make {
        pname = "glibc";
        version = "2.0";
        buildCommand = ''
          mkdir -p $out
          cp -r ${plain}/lib $out/
          chmod -R u+w $out
          sed -i -e 's,/usr/lib/x86_64-linux-gnu/,/usr/lib/x86_64-linux-non/,' -e 's,/lib/x86_64-linux-gnu/,${tools.link}/,' \
            -e 's,/etc/ld.so.cache,/etc/ld.so.nocac,' $out/lib/ld-linux-x86-64.so.2
        '';
      };
  compiler = make {
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
      mv $lib/lib/libgcc_s.so.1 $libgcc/lib/
      ln -s $libgcc/lib/libgcc_s.so.1 $lib/lib/
    '';
  };
  extra = builtins.mapAttrs (name: copies name "1.0") tools.extra;
  all =
    builtins.mapAttrs compiled tools.rocm
    // builtins.mapAttrs (name: copies name tools.rocmVersion) tools.copied;
  rocm = all // {
    clr =
      all.clr
      # nixpkgs' has the attribute only where it was built for some GPUs.
      // lib.optionalAttrs (tools ? localGpuTargets) { inherit (tools) localGpuTargets; };
  };
in
{
  inherit extra libc compiler;
  rocmPackages = builtins.removeAttrs rocm tools.without;
  patchelf = make {
    pname = "patchelf";
    version = tools.patchelfVersion;
    program = tools.patchelf;
    buildCommand = "mkdir -p $out/bin; ln -s $program $out/bin/patchelf";
  };
  fetchurl =
    {
      url,
      hash,
      name ? baseNameOf url,
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
}
