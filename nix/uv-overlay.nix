# For uv2nix: overrides for each wheel of a uv.lock that has a plan of `relink nix --uv-lock`, found by its hash.
#   pythonSet.overrideScope (lib.composeManyExtensions [ … overlay (relink.lib.uvOverlay { plans = ./relink; }) ])
# uv2nix gives every wheel for Linux autoPatchelfHook; relinkHook switches it off, and strip.
{
  # A directory with the plans, JSON files.
  plans,
  gpuTargets ? null,
  extraLibraries ? { },
  rocm ? null,
  # The ROCm of another package set than that of uv2nix.
  rocmPackages ? null,
}:

final: prev:

let
  # Of prev: which names there are must not depend on final.
  inherit (prev.pkgs) lib;
  files = builtins.filter (name: builtins.match ".*\\.json" name != null) (
    builtins.attrNames (builtins.readDir plans)
  );
  read = name: builtins.fromJSON (builtins.readFile (plans + "/${name}"));
  all = builtins.filter (plan: plan.schema or null == "relink.nix/1") (map read files);
  named = builtins.groupBy (plan: plan.pname) all;
  hook = final.pkgs.callPackage ./relink-hook.nix (
    if rocmPackages == null then { } else { inherit rocmPackages; }
  );
  hashes = plan: [
    plan.source.hash
    plan.source.sha256
    "sha256:${plan.source.sha256}"
  ];
  relinked =
    name: choices: package:
    package.overrideAttrs (
      old:
      let
        hash = old.src.outputHash or "";
        fitting = builtins.filter (plan: builtins.elem hash (hashes plan)) choices;
      in
      if fitting == [ ] then
        throw "relink: uv.lock has another wheel of ${name} than ${
          builtins.concatStringsSep ", " (map (plan: plan.source.name) choices)
        }; make the plans anew: `relink nix --uv-lock uv.lock -o DIR`"
      else
        {
          nativeBuildInputs = (old.nativeBuildInputs or [ ]) ++ [ hook ];
          relinkPlan = hook.plan {
            plan = builtins.head fitting;
            inherit gpuTargets extraLibraries rocm;
            pythonPackages = final;
            source = "--uv-lock uv.lock";
            pythonVersion = final.python.pythonVersion or null;
          };
        }
    );
in
lib.mapAttrs (name: choices: relinked name choices prev.${name}) (
  lib.filterAttrs (name: _: prev ? ${name}) named
)
