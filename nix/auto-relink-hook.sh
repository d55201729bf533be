# shellcheck shell=bash
# The last step of fixup: what is in site-packages is moved aside, and relink writes it anew, linked to what the inputs have.

relinkPackages=()
relinkPrefixes=()
# Each input, and what it propagates. Libraries of other Python packages (torch/lib) come first: an import maps them first.
gatherRelinkPrefixes() {
  local directory libraries
  if [ "$1" = @pythonPrefix@ ]; then return; fi
  for directory in "$1"/@sitePackages@/*/lib "$1"/lib; do
    libraries=("$directory"/*.so*)
    if [ ! -e "${libraries[0]-}" ]; then continue; fi
    if [ "$directory" = "$1/lib" ]; then relinkPrefixes+=(--prefix "$1"); else relinkPackages+=(--prefix "$directory"); fi
  done
}
addEnvHooks "${targetOffset:?}" gatherRelinkPrefixes

# Each is read when its hook runs: GPU code does not survive strip, and the others write search paths of their own.
dontStrip=1 dontPatchELF=1 dontAutoPatchelf=1

autoRelink() {
  local site=${out:?}/@sitePackages@ aside option options=() words=()
  if [ -n "${dontAutoRelink-}" ] || [ -z "$(find "$site" -name '*.so*' -print -quit)" ]; then return; fi
  for option in stub:relinkStub forward:relinkForward allow-missing:relinkAllowMissing gpu:relinkGpus; do
    words=()
    concatTo words "${option#*:}"
    options+=("${words[@]/#/--${option%%:*}=}")
  done
  if ! declare -p relinkGpus &> /dev/null; then options+=(@gpuOptions@); fi
  concatTo options relinkFlags
  aside=$(mktemp -d)
  mv "$site" "$aside/"
  # Nix keeps what the output refers to, so nobody has to register roots (RLK701).
  env -u PYTHONPATH NIX_STORE_DIR="${NIX_STORE:?}" TERM=dumb @relink@ run "$aside/site-packages" -o "$site" \
    --python @python@ "${relinkPackages[@]}" "${relinkPrefixes[@]}" --prefix @runtime@ --ignore RLK701 "${options[@]}" || exit 1
  rm -r "$aside"
}
# Before hooks that add to the search paths that relink writes, such as autoAddDriverRunpath.
postFixupHooks=(autoRelink "${postFixupHooks[@]}")
