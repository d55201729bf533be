{
  description = "What flakes take of pyproject.nix, uv2nix and build-system-pkgs, as their sources have it: one for all three";

  outputs = _: {
    # pyproject.nix, build/packages.nix: a scope of packages.
    build.packages =
      {
        python,
        pkgs,
        stdenv,
      }:
      let
        scope =
          packages:
          packages
          // {
            overrideScope =
              overlay:
              let
                final = packages // overlay final packages;
              in
              scope final;
            mkVirtualEnv =
              name: dependencies:
              stdenv.mkDerivation {
                pname = name;
                version = "0";
                paths = map (item: packages.${item}) (builtins.attrNames dependencies);
                buildCommand = "mkdir $out; :";
              };
          };
      in
      scope { inherit python pkgs stdenv; };

    # uv2nix, lib/workspace.nix and lib/overlays.nix.
    lib.workspace.loadWorkspace =
      { workspaceRoot }:
      let
        lock = builtins.fromTOML (builtins.readFile (workspaceRoot + "/uv.lock"));
        remote = builtins.filter (package: package ? wheels) lock.package;
      in
      {
        deps.default = builtins.listToAttrs (
          map (package: {
            inherit (package) name;
            value = [ ];
          }) remote
        );
        mkPyprojectOverlay =
          { sourcePreference }:
          assert sourcePreference == "wheel";
          final: _:
          builtins.listToAttrs (
            map (
              {
                name,
                version,
                wheels,
                ...
              }:
              let
                wheel = builtins.head wheels;
                package =
                  attributes:
                  final.stdenv.mkDerivation attributes
                  // {
                    overrideAttrs = change: package (attributes // change attributes);
                  };
              in
              {
                inherit name;
                value = package {
                  pname = name;
                  inherit version;
                  src = final.pkgs.fetchurl {
                    name = baseNameOf wheel.url;
                    inherit (wheel) url hash;
                  };
                };
              }
            ) remote
          );
      };

    # build-system-pkgs, default.nix.
    overlays.wheel = _: _: { };
  };
}
