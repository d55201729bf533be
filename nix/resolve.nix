# A plan of `relink nix`, resolved against a nixpkgs: attributes looked up, ROCm release and GPUs checked, and the edits as shell
# functions `relinkEdits` and `relinkChecks` (relink.sh has what they call). Everything that can fail at evaluation fails here.
{
  lib,
  stdenv,
  pkgs,
  rocmPackages,
}:

{
  plan,
  # The GPUs that must have code; null takes those that rocmPackages was built for.
  gpuTargets ? null,
  # Packages for what rocmPackages lacks, or instead of what it has, by the last part of the attribute.
  extraLibraries ? { },
  # One package that has all of ROCm in lib/, or where its libraryDirectories say, instead of rocmPackages: a vendor's archive, the
  # wheels of pip's ROCm (rocm-sdk.nix), a build of one's own.
  rocm ? null,
  # Other Python packages, for libraries that their import maps: torch, say.
  pythonPackages ? { },
  # How the wheel is named to `relink nix`, where that is not by its file: the lock file of uv2nix.
  source ? null,
  # "3.12", to be held against the wheel's; null where the caller knows better.
  pythonVersion ? null,
}:

let
  p = if builtins.isAttrs plan then plan else builtins.fromJSON (builtins.readFile plan);
  isa = import ./isa.nix { inherit lib; };
  fail = sentence: throw "relink: ${p.source.name}: ${sentence}";
  list = builtins.concatStringsSep ", ";
  system = stdenv.hostPlatform.system or "x86_64-linux";

  # The command that makes the plan anew, with the packages of today's nixpkgs where it was proved with such.
  ofRocm = builtins.filter (lib.hasPrefix "rocmPackages.") (builtins.attrNames p.libraries);
  anewOf =
    wheel:
    "`relink nix ${if source == null then wheel else source}"
    + lib.optionalString (p.again or "" != "") " ${p.again}"
    + (
      if p.proved then
        lib.concatMapStrings (
          name: " --nix-closure $(nix-build --no-out-link '<nixpkgs>' -A ${name})"
        ) ofRocm
      else if rocmMajor == null then
        ""
      else
        " --rocm-major ${rocmMajor}"
    )
    + " -o DIR`";
  anew = anewOf (
    lib.escapeShellArgs (
      [ p.source.name ]
      ++ lib.optionals (p.source.url != null) [
        "--url"
        p.source.url
      ]
    )
  );

  # Attributes

  scopes = {
    inherit
      rocmPackages
      pkgs
      stdenv
      extraLibraries
      pythonPackages
      ;
  };
  rocmVersion = if rocm == null then rocmPackages.clr.version or null else rocm.version or null;
  rocmMajor = if rocmVersion == null then null else builtins.head (lib.splitString "." rocmVersion);
  isRocm =
    attribute:
    let
      path = lib.splitString "." attribute;
    in
    rocm != null && builtins.head path == "rocmPackages" && !(extraLibraries ? ${lib.last path});
  lookUp =
    attribute:
    let
      found = find attribute;
      path = lib.splitString "." attribute;
      name = lib.last path;
      release = if rocmVersion == null then "" else " (ROCm ${rocmVersion})";
    in
    if found == null then
      fail "there is no ${attribute}${release}, which is to have ${
        list (p.libraries.${attribute} or [ "a directory of the plan" ])
      }; use a nixpkgs that has it, or pass extraLibraries.${name} = a package with the library in lib/, or make the package anew: ${anew}"
    else if builtins.head path == "pythonPackages" && pythonVersion == null then
      fail "${list p.libraries.${attribute}} is in the site-packages of ${name}; pass pythonVersion"
    else if builtins.head path == "pythonPackages" then
      "${found.out or found}/lib/python${pythonVersion}/site-packages"
    else
      lib.getLib found;
  find =
    attribute:
    let
      path = lib.splitString "." attribute;
      name = lib.last path;
      # A name that nixpkgs gave up throws; its sentence knows nothing of the wheel.
      tried = builtins.tryEval (
        extraLibraries.${name} or (
          if isRocm attribute then
            rocm
          else
            lib.attrByPath (builtins.tail path) null (scopes.${builtins.head path} or { })
        )
      );
    in
    if tried.success then tried.value else null;

  # Stubs: small libraries that the plan has in base64. They serve where the package set has not the library itself.
  stubs = p.stubs or [ ];
  stubbed = map (stub: stub.soname) stubs;
  stubsServe =
    attribute:
    builtins.all (soname: builtins.elem soname stubbed) p.libraries.${attribute}
    && find attribute == null;
  absent = if stubs == [ ] then [ ] else builtins.filter stubsServe (builtins.attrNames p.libraries);
  isThere = attribute: !builtins.elem attribute absent;

  # GPUs

  gpus =
    let
      built = if rocm == null then rocmPackages.clr.localGpuTargets or [ ] else rocm.gpuTargets or [ ];
      wanted = if gpuTargets == null then built else gpuTargets;
    in
    if wanted == null then [ ] else wanted;
  # nixpkgs' HIP takes the code of related processors by a patch; comgr, which unpacks compressed code, does not.
  patched = rocm == null && rocmPackages ? clr.gpuTargets;
  borrows =
    file: gpu:
    patched
    && !(file.compressed or false)
    && isa.standIn gpu != null
    && isa.covers file (isa.standIn gpu);
  # Of files that Python picks one of, one is enough.
  lackingBy =
    runs: gpu:
    let
      groups = lib.partition (file: file.variant or false) p.coverage;
      lacks = builtins.filter (file: !runs file gpu);
    in
    lacks groups.wrong
    ++ (if builtins.any (file: runs file gpu) groups.right then [ ] else groups.right);
  lacking = lackingBy (file: gpu: isa.covers file gpu || borrows file gpu);
  uncovered = builtins.filter (gpu: lacking gpu != [ ]) gpus;
  borrowing = builtins.filter (gpu: lacking gpu == [ ] && lackingBy isa.covers gpu != [ ]) gpus;
  # `rocmPackages.gfx11` is built for a family, and its user has one of it.
  family = gpuTargets == null && builtins.length gpus > 1;
  tell =
    condition: sentence: if condition then lib.warn "relink: ${p.source.name}: ${sentence}" else (x: x);
  told =
    tell (uncovered != [ ])
      "no code for ${list uncovered}, which ROCm was built for beside GPUs that the wheel has code for; if yours is one of them, choose a release of the wheel that has it"
      (
        tell (borrowing != [ ])
          "no code for ${list borrowing}; nixpkgs' HIP takes that for ${list (lib.unique (map isa.standIn borrowing))} there, by a patch that AMD does not support"
          (
            tell (absent != [ ]) "there is no ${list absent}, so stubs stand in for ${
              list (builtins.concatMap (attribute: p.libraries.${attribute}) absent)
            }" true
          )
      );
  targetsOf = file: lib.unique (map (code: code.target) (builtins.concatLists file.sets));

  # What is checked before anything is built

  checked =
    if p.schema or null != "relink.nix/1" then
      throw "relink: the plan is none of the kind that this relink reads (relink.nix/1); make the package anew with this relink: `relink nix ${p.source.name or "WHEEL"} -o DIR`"
    else if system != "x86_64-linux" then
      fail "the wheel is for x86_64-linux, the package set is for ${system}"
    else if p.python != null && pythonVersion != null && p.python != pythonVersion then
      fail "the wheel is for Python ${p.python}, the package set has Python ${pythonVersion}; use python${
        builtins.replaceStrings [ "." ] [ "" ] p.python
      }Packages, or take the wheel for the other (`relink fetch ${p.pname}==${p.version} --python python${pythonVersion}`) and make the package anew: ${anewOf "WHEEL"}"
    else if p.rocm != null && rocmMajor != null && toString p.rocm != rocmMajor then
      fail "the plan is for ROCm ${toString p.rocm}, ${
        if rocm == null then "rocmPackages" else "rocm"
      } has ROCm ${rocmVersion}; use a wheel that was built for that, or if there is none, make the package anew: ${anew}"
    else if uncovered != [ ] && !(family && builtins.length uncovered < builtins.length gpus) then
      let
        gpu = builtins.head uncovered;
        file = builtins.head (lacking gpu);
      in
      fail "no code for ${gpu} in ${file.path}, which has ${list (targetsOf file)}; choose a release of the wheel that has it and make the package anew: ${anewOf "WHEEL"}; or gpuTargets = [ ] to build all the same"
    else
      told;

  # The edits

  entriesOfItem =
    item:
    if item.attribute == null then
      [ item.text ]
    else
      map (directory: "${lookUp item.attribute}/${directory}") (
        if isRocm item.attribute then rocm.libraryDirectories or [ item.directory ] else [ item.directory ]
      );
  entriesOf =
    file:
    if file.search_path == null then
      [ ]
    else
      builtins.filter (item: item.attribute == null || isThere item.attribute) file.search_path.entries;
  needed =
    file:
    builtins.concatMap (soname: [
      "--remove-needed"
      soname
    ]) file.remove
    ++ builtins.concatMap (one: [
      "--replace-needed"
      one.old
      one.new
    ]) file.replace;
  searchPath =
    file:
    if file.search_path == null then
      [ ]
    else if entriesOf file == [ ] then
      [ "--remove-rpath" ]
    else
      (if file.search_path.kind == "rpath" then [ "--force-rpath" ] else [ ])
      ++ [
        "--set-rpath"
        (builtins.concatStringsSep ":" (lib.unique (builtins.concatMap entriesOfItem (entriesOf file))))
      ];
  loader = "${lib.getLib stdenv.cc.libc}/lib/ld-linux-x86-64.so.2";
  interpreter =
    file:
    if file.interpreter then
      [
        "--set-interpreter"
        loader
      ]
    else
      [ ];
  # The two kinds of edit are two calls: patchelf 0.14.3 mixes them up in one.
  call =
    function: file: arguments:
    if arguments == [ ] then
      ""
    else
      "  ${function} ${
          lib.escapeShellArgs (
            [
              file.base
              file.path
            ]
            ++ arguments
          )
        }\n";
  edits =
    file:
    call "relinkPatch" file (needed file)
    + call "relinkAdd" file file.add
    + call "relinkPatch" file (searchPath file ++ interpreter file);
  # For a development shell: whether LD_LIBRARY_PATH has other libraries than the plan.
  entries = builtins.concatMap entriesOf p.files;
  directories = lib.unique (builtins.filter (item: item.attribute != null) entries);
  shadowCheck = ''
    source ${./shadows.sh}
    relinkShadows ${
      lib.escapeShellArgs (
        [ p.pname ]
        ++ builtins.concatMap (
          item:
          builtins.concatMap (
            soname:
            builtins.concatMap (directory: [
              soname
              directory
            ]) (entriesOfItem item)
          ) p.libraries.${item.attribute}
        ) directories
      )
    }
  '';
  original =
    file:
    lib.optionalString (file.sha256 or null != null)
      "  relinkOriginal ${
          lib.escapeShellArgs [
            file.base
            file.path
            file.sha256
          ]
        } || return 1\n";
  write =
    stub:
    "  relinkStub ${
        lib.escapeShellArgs [
          stub.base
          stub.path
          stub.sha256
          (builtins.toFile "relink-stub" stub.content)
        ]
      } || return 1\n";
  shell = ''
    relinkEdits() {
      :
    ${lib.concatMapStrings original p.files}${lib.concatMapStrings edits p.files}${lib.concatMapStrings write stubs}  relinkSeal ${
      lib.concatMapStringsSep " " (
        file:
        lib.escapeShellArgs [
          file.base
          file.path
        ]
      ) (p.files ++ stubs)
    }
    }
    relinkChecks() {
      relinkUnchanged || return 1
      local -a relinkDlopens=(${
        lib.escapeShellArgs (
          builtins.concatMap (
            one:
            builtins.concatMap (soname: [
              one.library
              soname
            ]) one.sonames
          ) (p.dlopens or [ ])
        )
      })
      local -a relinkUndefined=(${lib.escapeShellArgs p.undefined})
      local -a relinkMissing=(${lib.escapeShellArgs p.missing})
      local failed=
    ${
      lib.concatMapStrings (
        file:
        "  relinkDryRun ${
            lib.escapeShellArgs [
              loader
              file.base
              file.path
            ]
          } || failed=1\n"
      ) p.files
    }  if [ -n "$failed" ]; then
        echo ${lib.escapeShellArg "relink: make the package anew, which says all at once what does not fit: ${anew}"} >&2
        return 1
      fi
    }
  '';
in
assert checked;
{
  plan = p;
  anewWith = anewOf;
  inherit shell shadowCheck;
  libraries = map lookUp (builtins.filter isThere (builtins.attrNames p.libraries));
}
