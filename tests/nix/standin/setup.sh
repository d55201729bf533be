# The order of nixpkgs' stdenv for a wheel: unpack, install, fixup with postFixup and then its hooks, install check.
export PATH=/usr/bin:/bin NIX_STORE="${NIX_STORE:?}"
set -euo pipefail
postFixupHooks=()
runHook() {
  local hook
  if [ -n "${!1-}" ]; then eval "${!1}"; fi
  if [ "$1" = postFixup ]; then for hook in ${postFixupHooks[@]+"${postFixupHooks[@]}"}; do "$hook"; done; fi
}
appendToVar() {
  local -n variable=$1
  variable="${variable-} ${*:2}"
}
add() {
  PATH=$1/bin:$PATH
  local more
  if [ -e "$1/nix-support/propagated-build-inputs" ]; then
    for more in $(cat "$1/nix-support/propagated-build-inputs"); do add "$more"; done
  fi
  if [ -e "$1/nix-support/setup-hook" ]; then source "$1/nix-support/setup-hook"; fi
}
for input in ${nativeBuildInputs-}; do add "$input"; done
cd "$(mktemp -d "${TMPDIR:-/tmp}/build.XXXXXX")"
if [ -n "${buildCommand-}" ]; then
  eval "$buildCommand"
  exit 0
fi
mkdir -p "$out/$sitePackages"
unzip -q "$src" -d "$out/$sitePackages"
for data in "$out/$sitePackages"/*.data; do
  [ -d "$data/scripts" ] || continue
  mkdir -p "$out/bin"
  cp "$data/scripts"/* "$out/bin/"
  rm -r "$data/scripts"
done
chmod -R u+w "$out"
runHook preFixup
# fixupOutputHooks of nixpkgs: strip, and patchelf --shrink-rpath. Each reads its flag when it runs.
if [ -z "${dontStrip-}" ]; then find "$out" -name '*.so' -exec strip --strip-unneeded {} +; fi
if [ -z "${dontPatchELF-}" ] && command -v patchelf > /dev/null; then
  find "$out" -name '*.so' -exec patchelf --shrink-rpath {} \;
fi
runHook postFixup
if [ -n "${doCheck-}" ]; then eval "${installCheckPhase-}"; fi
runHook preDist
for phase in ${postPhases-}; do "$phase"; done
