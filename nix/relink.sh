# shellcheck shell=bash
# What the edits of nix/resolve.nix call. Files are named by a base (site-packages, or root for $out itself) and a path below it.
# relinkSitePackages: site-packages relative to $out; found by its name where it is not set.

relinkPlace() {
  case $1 in
    site-packages)
      local directory=${relinkSitePackages:-}
      if [ -z "$directory" ]; then
        local found=("${out:?}"/lib/python*/site-packages)
        directory=${found[0]#"$out"/}
      fi
      printf '%s\n' "$out/$directory/$2"
      ;;
    *) printf '%s\n' "${out:?}/$2" ;;
  esac
}

# BASE PATH ARGUMENT...
relinkPatch() {
  local file
  file=$(relinkPlace "$1" "$2")
  if [ ! -f "$file" ]; then
    echo "relink: $file is not in the package, though the plan edits it: is this the wheel that the plan was made from?" >&2
    return 1
  fi
  chmod u+w "$file"
  patchelf "${@:3}" "$file"
}

# BASE PATH SONAME...: behind the file's own NEEDED. patchelf puts what it adds in front, sorted where it is several in one call,
# so all are added anew from the last on.
relinkAdd() {
  local own removed=() all soname index
  mapfile -t own < <(patchelf --print-needed "$(relinkPlace "$1" "$2")")
  for soname in ${own[@]+"${own[@]}"}; do
    removed+=(--remove-needed "$soname")
  done
  if [ ${#removed[@]} -gt 0 ]; then relinkPatch "$1" "$2" "${removed[@]}"; fi
  all=(${own[@]+"${own[@]}"} "${@:3}")
  for ((index = ${#all[@]} - 1; index >= 0; index--)); do
    relinkPatch "$1" "$2" --add-needed "${all[index]}"
  done
}

# NAME GLOB...
relinkMatches() {
  local name=$1 pattern
  shift
  for pattern in "$@"; do
    # shellcheck disable=SC2254  # a glob on purpose
    case $name in $pattern) return 0 ;; esac
  done
  return 1
}

# SONAME: whether it may be missing. A glob names it whole, without its version, or without .so.
relinkMayMiss() {
  local name
  for name in "$1" "${1%%.so*}.so" "${1%%.so*}"; do
    if relinkMatches "$name" ${relinkMissing[@]+"${relinkMissing[@]}"}; then return 0; fi
  done
  return 1
}

# LOADER BASE PATH: what `ldd -r` does, with the loader that will run it. Nothing of the file is executed.
# Every library must be found, in the store, with its versions, and no symbol may be open but those that the process supplies.
relinkDryRun() {
  local loader=$1 file line name path symbol bad= absent=
  file=$(relinkPlace "$2" "$3")
  while IFS= read -r line; do
    case $line in
      *"undefined symbol: "*)
        # Of a library that may be missing nobody knows which symbols it would have had.
        [ -z "$absent" ] || continue
        symbol=${line#*undefined symbol: }
        symbol=${symbol%%[[:space:],]*}
        relinkMatches "$symbol" ${relinkUndefined[@]+"${relinkUndefined[@]}"} && continue
        ;;
      *" => not found"*)
        name=${line%% =>*}
        name=${name//[[:space:]]/}
        if relinkMayMiss "$name"; then
          absent=1
          continue
        fi
        ;;
      *" => "*" (0x"*)
        path=${line#* => }
        case $path in "${NIX_STORE:?}"/*) continue ;; esac
        line="not from the store: ${line#"${line%%[![:space:]]*}"}"
        ;;
      *"linux-vdso.so"* | *"linux-gate.so"* | "") continue ;;
      [[:space:]]"$NIX_STORE"/*" (0x"*) continue ;;
      [[:space:]]"statically linked") continue ;;
    esac
    echo "relink: $3: ${line#"${line%%[![:space:]]*}"}" >&2
    bad=1
  done < <(
    LD_TRACE_LOADED_OBJECTS=1 LD_WARN=yes LD_BIND_NOW=yes "$loader" --inhibit-cache \
      --library-path "${loader%/*}" "$file" 2>&1 || echo "the loader gave up"
  )
  [ -z "$bad" ]
}
