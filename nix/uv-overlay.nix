# For uv2nix and pyproject.nix: autoRelinkHook on each wheel that needs ROCm, which is known by its name or version.
#   pythonSet.overrideScope (lib.composeManyExtensions [ … overlay (relink.lib.uvOverlay { }) ])
of: # default.nix has it: what belongs to one set of Python packages
{
  wheels ? [ ], # names of more wheels
  except ? [ ], # names of wheels that stay as they are
  # What they are linked with; a build that needs more ends with the names of all of it.
  libraries ? rocmPackages: [ rocmPackages.clr ],
  # The ROCm of another package set than that of uv2nix, or a narrower scope.
  rocmPackages ? null,
  # Attributes of the hook, such as { relinkStub = [ "auto" ]; }, of all wheels.
  attributes ? { },
}:

final: prev:

let
  inherit (prev.pkgs) lib;
  profiles = map (name: lib.importTOML (../profiles/packages + "/${name}")) (
    builtins.attrNames (builtins.readDir ../profiles/packages)
  );
  # Packages that the vendor alone has, or that have a variant for ROCm beside others.
  vendors = lib.concatMap (profile: profile.distributions) (
    builtins.filter (profile: profile ? variants || !(profile ? nixpkgs)) profiles
  );
  isRocm = name: builtins.match "rocm(-sdk(-.*)?)?" name != null;
  isPure = package: lib.hasSuffix "-any.whl" (toString (package.src.name or ""));
  scope = if rocmPackages == null then final.pkgs.rocmPackages else rocmPackages;
  hook = (of final).autoRelinkHook.override { rocmPackages = scope; };
  hooked =
    name: package:
    package.overrideAttrs (
      old:
      {
        nativeBuildInputs = old.nativeBuildInputs or [ ] ++ [ hook ];
        # Builds of pyproject.nix do not have what the wheel depends on; extensions of torch need its libraries.
        buildInputs =
          old.buildInputs or [ ]
          ++ libraries scope
          ++ lib.optional (final ? torch && name != "torch") final.torch;
      }
      // attributes
    );
  # Which names there are must not depend on what a package is, which final decides.
  chosen =
    name: package:
    builtins.elem name wheels
    || (
      package ? overrideAttrs
      && (builtins.elem name vendors || lib.hasInfix "rocm" "${name} ${toString (package.version or "")}")
      && !(isRocm name || builtins.elem name except || isPure package)
    );
in
lib.mapAttrs (name: package: if chosen name package then hooked name package else package) prev
