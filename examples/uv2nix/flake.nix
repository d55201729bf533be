{
  description = "ROCm wheels of a uv.lock, relinked for nixpkgs' ROCm";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

    # Of the registry: nix registry add relink PATH
    relink.url = "relink";
    relink.inputs.nixpkgs.follows = "nixpkgs";

    pyproject-nix.url = "github:pyproject-nix/pyproject.nix";
    pyproject-nix.inputs.nixpkgs.follows = "nixpkgs";

    uv2nix.url = "github:pyproject-nix/uv2nix";
    uv2nix.inputs.pyproject-nix.follows = "pyproject-nix";
    uv2nix.inputs.nixpkgs.follows = "nixpkgs";

    pyproject-build-systems.url = "github:pyproject-nix/build-system-pkgs";
    pyproject-build-systems.inputs.pyproject-nix.follows = "pyproject-nix";
    pyproject-build-systems.inputs.uv2nix.follows = "uv2nix";
    pyproject-build-systems.inputs.nixpkgs.follows = "nixpkgs";
  };

  outputs =
    {
      nixpkgs,
      relink,
      pyproject-nix,
      uv2nix,
      pyproject-build-systems,
      ...
    }:
    let
      system = "x86_64-linux";
      pkgs = nixpkgs.legacyPackages.${system};
      workspace = uv2nix.lib.workspace.loadWorkspace { workspaceRoot = ./.; };
      base = pkgs.callPackage pyproject-nix.build.packages { python = pkgs.python312; };
      pythonSet = base.overrideScope (
        nixpkgs.lib.composeManyExtensions [
          pyproject-build-systems.overlays.wheel
          (workspace.mkPyprojectOverlay { sourcePreference = "wheel"; })
          (relink.lib.uvOverlay {
            libraries = rocmPackages: [
              rocmPackages.clr
              rocmPackages.hipblas
              rocmPackages.hipfft
              rocmPackages.miopen
              rocmPackages.rocm-smi
              rocmPackages.roctracer
            ];
          })
        ]
      );
      environment = pythonSet.mkVirtualEnv "rocm-env" workspace.deps.default;
    in
    {
      packages.${system}.default = environment;
      devShells.${system}.default = pkgs.mkShell { packages = [ environment ]; };
    };
}
