# shellcheck shell=bash
# The last step of fixup: ELF files of each output are moved aside, and relink writes them anew, linked to what the inputs have.

relinkPackages=() relinkPrefixes=() relinkLast=()
declare -A relinkNarrowed=()
for gpu in @gpus@; do relinkNarrowed[$gpu]=1; done
# What relink prints, in the words of a package: attributes in the place of options, and nothing of where the build has its files.
relinkWords='/^with /d
/ is the relinked copy; /d
/^Next:/,$d
s|/[^ :,;]*/\.relink\.[A-Za-z0-9]{6}/||g
s/Install the package that has the library, or name a prefix that has it \(--prefix\)\./Add the package that has it to buildInputs./
s/pass --allow-missing [A-Z]+/name it in relinkAllowMissing/
s/(the|a) prefix \(--prefix\)|--prefix( DIR)?/buildInputs/g
s/\b(no|the) prefix has/\1 package of buildInputs has/g
s/--(allow-isa-gap|interpreter|force|ignore)/relinkFlags = [ "--\1" ]/g'

# Each input, and what it propagates. Libraries of other Python packages (torch/lib) come first: an import maps them first.
gatherRelinkPrefixes() {
  local directory libraries name=${1##*/}
  if [[ @python@ == "$1"/* ]]; then return; fi
  # rocmPackages.gfx1030 has rocblas-gfx1030-7.2.3; of a family (rocmPackages.gfx11) each GPU is named.
  if [[ $name =~ ((-gfx[0-9a-f]+)+)- ]]; then
    for name in ${BASH_REMATCH[1]//-/ }; do relinkNarrowed[$name]=1; done
  fi
  for directory in "$1"/@sitePackages@/*/lib "$1"/lib; do
    libraries=("$directory"/*.so*)
    if [ ! -e "${libraries[0]-}" ]; then continue; fi
    if [ "$directory" = "$1/lib" ]; then
      relinkPrefixes+=(--prefix "$1")
    elif [ -e "$directory/libstdc++.so.6" ]; then
      relinkLast+=(--prefix "$directory") # the C++ runtime is the package set's
    else
      relinkPackages+=(--prefix "$directory")
    fi
  done
}

# As addAutoPatchelfSearchPath: more directories with libraries.
addAutoRelinkSearchPath() {
  relinkPrefixes+=("${@/#/--prefix=}")
}

# Print the ELF files in $1 but for those in $2 and those moved aside, each with a null byte.
findELF() {
  local file
  find "$1" \( -path "$2" -o -name '.relink.??????' \) -prune -o -type f \( -name '*.so*' -o -perm -0100 \) -print0 | while IFS= read -r -d '' file; do
    if isELF "$file"; then printf '%s\0' "$file"; fi
  done
}

runRelink() {
  relinkFound=1
  # Nix keeps what the output refers to, so nobody has to register roots (RLK701).
  env -u PYTHONPATH NIX_STORE_DIR="${NIX_STORE:?}" TERM=dumb COLUMNS=1000 @relink@ run "$@" --python @python@ --ignore RLK701 \
    --jobs "${NIX_BUILD_CORES:-1}" "${relinkPackages[@]}" "${relinkPrefixes[@]}" --prefix @runtime@ "${relinkLast[@]}" \
    "${relinkOptions[@]}" 2>&1 | sed -E "$relinkWords" |
    awk 'NR == 1 { verdict = substr($0, index($0, ": ") + 2) } NR == 1 || $0 != verdict' # the verdict once
}

# Add to the search paths of the files in $2 what those in $1 have of the package's own postFixup, and what the attributes of
# autoPatchelfHook name: appendRunpaths, and for programs runtimeDependencies.
addRunpaths() {
  local file new entry now entries=() appended=() needed=()
  concatTo appended appendRunpaths
  concatTo needed runtimeDependencies
  if [ -z "${postFixup-}${appended[*]}${needed[*]}" ]; then return; fi
  while IFS= read -r -d '' file; do
    new=$2${file#"$1"}
    mapfile -t entries < <(@patchelf@ --print-rpath "$file" | tr : '\n' | grep -E "^($NIX_STORE|/run)/")
    entries+=("${appended[@]}")
    if @patchelf@ --print-interpreter "$new" &> /dev/null; then entries+=("${needed[@]/%//lib}"); fi
    for entry in "${entries[@]}"; do
      now=$(@patchelf@ --print-rpath "$new")
      case :$now: in *:"$entry":*) ;; *) @patchelf@ --add-rpath "$entry" "$new" ;; esac
    done
  done < <(findELF "$1" '')
}

autoRelink() {
  local output prefix site work file option words relinkFound="" relinkOptions=()
  for option in allow-missing:relinkAllowMissing assume-symbols:relinkAssumeSymbols forward:relinkForward gpu:relinkGpus \
    preload:relinkPreload stub:relinkStub substitute:relinkSubstitute; do
    words=()
    concatTo words "${option#*:}"
    relinkOptions+=("${words[@]/#/--${option%%:*}=}")
    relinkWords+=$'\n'"s/--${option%%:*}/${option#*:}/g"
  done
  if ! declare -p relinkGpus &> /dev/null; then
    for option in "${!relinkNarrowed[@]}"; do relinkOptions+=("--gpu=$option"); done
    if [ "${#relinkNarrowed[@]}" -gt 1 ]; then relinkOptions+=(--allow-isa-gap); fi
  fi
  concatTo relinkOptions relinkFlags
  for output in $(getAllOutputNames); do
    prefix=${!output}
    if [ ! -d "$prefix" ] || [ "$output" = debug ]; then continue; fi
    site=$prefix/@sitePackages@ work=$(mktemp -d "$prefix/.relink.XXXXXX")
    # dist of format = "wheel" has the vendor's wheel.
    for file in "$prefix"/*.whl; do
      if [ -e "$file" ]; then
        runRelink "$file" --keep-version -o "$work/wheels"
        rm "$file"
        mv "$work"/wheels/*.whl "$prefix/"
      fi
    done
    if [ -d "$site" ] && IFS= read -r -d '' file < <(findELF "$site" ''); then
      mv "$site" "$work/"
      runRelink "$work/site-packages" -o "$site"
      addRunpaths "$work/site-packages" "$site"
    fi
    while IFS= read -r -d '' file; do
      mkdir -p "$(dirname "$work/rest/$output/${file#"$prefix/"}")"
      mv "$file" "$work/rest/$output/${file#"$prefix/"}"
    done < <(findELF "$prefix" "$site")
    if [ -d "$work/rest/$output" ]; then
      runRelink "$work/rest/$output" -o "$work/new"
      addRunpaths "$work/rest/$output" "$work/new"
      cp -a "$work/new/." "$prefix/"
    fi
    rm -r "$work"
  done
  if [ -z "$relinkFound" ]; then
    echo "autoRelinkHook: no output has an ELF file; take the hook out of nativeBuildInputs, or set dontAutoRelink" >&2
    return 1
  fi
}

if [ -z "${dontAutoRelink-}" ]; then
  addEnvHooks "${targetOffset:?}" gatherRelinkPrefixes
  # Each is read when its hook runs: GPU code does not survive strip, and the others write search paths of their own.
  # shellcheck disable=SC2034
  dontStrip=1 dontPatchELF=1 dontAutoPatchelf=1
  # Before hooks that add to the search paths that relink writes, such as autoAddDriverRunpath.
  postFixupHooks=(autoRelink "${postFixupHooks[@]}")
fi
