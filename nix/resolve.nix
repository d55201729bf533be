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
  # "3.12", to be held against the wheel's; null where the caller knows better.
  pythonVersion ? null,
}:

let
  p = if builtins.isAttrs plan then plan else builtins.fromJSON (builtins.readFile plan);
  isa = import ./isa.nix { inherit lib; };
  fail = sentence: throw "relink: ${p.source.name}: ${sentence}";
  list = builtins.concatStringsSep ", ";

  # Attributes

  scopes = {
    inherit
      rocmPackages
      pkgs
      stdenv
      extraLibraries
      ;
  };
  rocmVersion = rocmPackages.clr.version or null;
  rocmMajor = if rocmVersion == null then null else builtins.head (lib.splitString "." rocmVersion);
  lookUp =
    attribute:
    let
      path = lib.splitString "." attribute;
      name = lib.last path;
      found =
        extraLibraries.${name}
          or (lib.attrByPath (builtins.tail path) null (scopes.${builtins.head path} or { }));
      ofRocm = if rocmVersion == null then "" else " (ROCm ${rocmVersion})";
    in
    if found == null then
      fail "there is no ${attribute}${ofRocm}, which is to have ${
        list (p.libraries.${attribute} or [ "a directory of the plan" ])
      }; use a nixpkgs that has it, or pass extraLibraries.${name} = a package with the library in lib/"
    else
      lib.getLib found;

  # GPUs

  gpus =
    let
      wanted = if gpuTargets == null then rocmPackages.clr.localGpuTargets or [ ] else gpuTargets;
    in
    if wanted == null then [ ] else wanted;
  lacking = gpu: builtins.filter (file: !isa.covers file gpu) p.coverage;
  uncovered = builtins.filter (gpu: lacking gpu != [ ]) gpus;
  targetsOf = file: lib.unique (map (code: code.target) (builtins.concatLists file.sets));

  # What is checked before anything is built

  checked =
    if p.schema or null != "relink.nix/1" then
      throw "relink: the plan is none of the kind that this relink reads (relink.nix/1)"
    else if p.python != null && pythonVersion != null && p.python != pythonVersion then
      fail "the wheel is for Python ${p.python}, the package set has Python ${pythonVersion}; use python${
        builtins.replaceStrings [ "." ] [ "" ] p.python
      }Packages"
    else if p.rocm != null && rocmMajor != null && toString p.rocm != rocmMajor then
      fail "the plan is for ROCm ${toString p.rocm}, rocmPackages has ROCm ${rocmVersion}; make the package anew with `relink nix` for that, from a wheel that was built for it"
    else if uncovered != [ ] then
      let
        gpu = builtins.head uncovered;
        file = builtins.head (lacking gpu);
      in
      fail "no code for ${gpu} in ${file.path}, which has ${list (targetsOf file)}; choose a release of the wheel that has it, or gpuTargets = [ ] to build all the same"
    else
      true;

  # The edits

  entry =
    item:
    if item.attribute == null then item.text else "${lookUp item.attribute}/${item.directory}";
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
    else if file.search_path.entries == [ ] then
      [ "--remove-rpath" ]
    else
      (if file.search_path.kind == "rpath" then [ "--force-rpath" ] else [ ])
      ++ [
        "--set-rpath"
        (builtins.concatStringsSep ":" (map entry file.search_path.entries))
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
  shell = ''
    relinkEdits() {
      :
    ${lib.concatMapStrings edits p.files}}
    relinkChecks() {
      local -a relinkUndefined=(${lib.escapeShellArgs p.undefined})
      local -a relinkMissing=(${lib.escapeShellArgs p.missing})
      local failed=
    ${lib.concatMapStrings (
      file: "  relinkDryRun ${lib.escapeShellArgs [ loader file.base file.path ]} || failed=1\n"
    ) p.files}  [ -z "$failed" ]
    }
  '';
in
assert checked;
{
  plan = p;
  inherit shell;
  libraries = map lookUp (builtins.attrNames p.libraries);
}
