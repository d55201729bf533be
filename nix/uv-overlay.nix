# For uv2nix and pyproject.nix: autoRelinkHook on each wheel that needs ROCm, which is known by its name or version.
#   pythonSet.overrideScope (lib.composeManyExtensions [ … overlay (relink.lib.uvOverlay { }) ])
of: # default.nix has it: what belongs to one set of Python packages
{
  wheels ? [ ], # names of more wheels
  except ? [ ], # names of wheels that stay as they are
  # What they are linked with: rocmPackages: with rocmPackages; [ clr rocblas ]; null for all that relink knows of.
  libraries ? null,
  # The ROCm of another package set than that of uv2nix, or a narrower scope.
  rocmPackages ? null,
  stub ? [ ],
  allowMissing ? [ ],
  gpus ? null,
}:

final: prev:

let
  # Of prev: which names there are must not depend on final.
  inherit (prev.pkgs) lib;
  profiles = map (name: lib.importTOML (../profiles/packages + "/${name}")) (
    builtins.attrNames (builtins.readDir ../profiles/packages)
  );
  # Packages that the vendor alone has, or that have a variant for ROCm beside others.
  vendors = lib.concatMap (profile: profile.distributions) (
    builtins.filter (profile: profile ? variants || !(profile ? nixpkgs)) profiles
  );
  isRocm = name: builtins.match "rocm(-sdk(-.*)?)?" name != null;
  needs =
    name:
    builtins.elem name vendors
    || lib.hasInfix "rocm" name
    || lib.hasInfix "+rocm" (toString (prev.${name}.version or ""));
  names = builtins.filter (
    name:
    prev ? ${name}.overrideAttrs
    && (builtins.elem name wheels || (needs name && !(isRocm name) && !(builtins.elem name except)))
  ) (builtins.attrNames prev);
  scope = if rocmPackages == null then final.pkgs.rocmPackages else rocmPackages;
  hook = (of final).autoRelinkHook.override { rocmPackages = scope; };
in
lib.genAttrs names (
  name:
  prev.${name}.overrideAttrs (old: {
    nativeBuildInputs = old.nativeBuildInputs or [ ] ++ [ hook ];
    buildInputs =
      old.buildInputs or [ ] ++ (if libraries == null then hook.libraries else libraries) scope;
    relinkStub = stub;
    relinkAllowMissing = allowMissing;
    ${if gpus == null then null else "relinkGpus"} = gpus;
  })
)
