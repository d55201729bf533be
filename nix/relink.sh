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

relinkSum() {
  local sum
  sum=$(sha256sum "$1")
  printf '%s\n' "${sum%% *}"
}

# BASE PATH SHA256: the file must be the vendor's still.
relinkOriginal() {
  local file
  file=$(relinkPlace "$1" "$2")
  # relinkPatch says what is missing.
  if [ -f "$file" ] && [ "$(relinkSum "$file")" != "$3" ]; then
    echo "relink: $2 is not the vendor's file: something in this build (strip, patchelf, autoPatchelfHook, a phase of your own) changed it before relink, or it is of another wheel than the plan" >&2
    return 1
  fi
}

relinkSeals=()
# BASE PATH...: what the edits have made, for relinkUnchanged.
relinkSeal() {
  local file
  while [ $# -gt 0 ]; do
    file=$(relinkPlace "$1" "$2")
    relinkSeals+=("$file" "$(relinkSum "$file")")
    shift 2
  done
}

relinkUnchanged() {
  local index changed=
  for ((index = 0; index < ${#relinkSeals[@]}; index += 2)); do
    if [ "$(relinkSum "${relinkSeals[index]}")" != "${relinkSeals[index + 1]}" ]; then
      echo "relink: ${relinkSeals[index]#"${out:?}"/} was changed after relink's edits: something else in this build touched it (a hook behind fixup, a postFixup of your own)" >&2
      changed=1
    fi
  done
  [ -z "$changed" ]
}

# The last phase: whatever came behind fixup has left the files alone.
relinkSealedPhase() {
  relinkUnchanged
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

# BASE PATH SHA256 FILE: write a stub, whose bytes FILE has in base64, and its line of RECORD.
relinkStub() {
  local file record digest
  file=$(relinkPlace "$1" "$2")
  mkdir -p "${file%/*}"
  base64 -d "$4" >"$file"
  chmod 755 "$file"
  if [ "$(relinkSum "$file")" != "$3" ]; then
    echo "relink: the plan has a stub $2 whose bytes are not those of its sha256: the plan was changed; make the package anew" >&2
    return 1
  fi
  # RECORD has the digest in base64 for addresses, without padding (PEP 376, PEP 427).
  digest=$(printf '%b' "$(sed 's/../\\x&/g' <<<"$3")" | base64 | tr '+/' '-_' | tr -d '=')
  while IFS= read -r record; do
    sed -i -e "\|^${2//./[.]},|d" -e '$a\' "$record"
    printf '%s,sha256=%s,%s\n' "$2" "$digest" "$(stat -c %s "$file")" >>"$record"
  done < <(compgen -G "${file%/"$2"}/*.dist-info/RECORD")
}

# NAME: the distribution's name in METADATA and in the directory of it, so that what depends on NAME finds it.
relinkProvide() {
  local site=${relinkSitePackages:-} old new
  site=${out:?}/${site:?}
  old=$(compgen -G "$site/*.dist-info" | head -n 1)
  new=${old##*/}
  new=${1//-/_}-${new#*-}
  sed -i "0,/^Name: .*/s//Name: $1/" "$old/METADATA"
  if [ -f "$old/RECORD" ]; then
    sed -i -e "s|^\(${old##*/}/METADATA\),.*|\1,,|" -e "s|^${old##*/}/|$new/|" "$old/RECORD"
  fi
  if [ "$old" != "$site/$new" ]; then mv "$old" "$site/$new"; fi
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
  local loader=$1 file line name path symbol bad= absent= pair
  local -a mapped=()
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
        mapped+=("${path% (0x*}")
        case $path in "${NIX_STORE:?}"/*) continue ;; esac
        line="not from the store: ${line#"${line%%[![:space:]]*}"}"
        ;;
      *"linux-vdso.so"* | *"linux-gate.so"* | "") continue ;;
      [[:space:]]"$NIX_STORE"/*" (0x"*) continue ;;
      [[:space:]]"statically linked") continue ;;
    esac
    echo "relink: $3: ${line#"${line%%[![:space:]]*}"}" >&2
    bad=1
  done < <(relinkTrace "$loader" "$file")
  while IFS= read -r pair; do
    echo "relink: $3: $pair in one process (relink rules RLK130)" >&2
    bad=1
  done < <(relinkTwoVersions ${mapped[@]+"${mapped[@]}"})
  if [ -z "$bad" ]; then relinkFollow "$loader" "$3" "$file" ${mapped[@]+"${mapped[@]}"}; fi
  [ -z "$bad" ]
}

# LOADER FILE
relinkTrace() {
  LD_TRACE_LOADED_OBJECTS=1 LD_WARN=yes LD_BIND_NOW=yes "$1" --inhibit-cache \
    --library-path "${1%/*}" "$2" 2>&1 || echo "the loader gave up"
}

# PATH...: says each two files that differ in the version of their name only.
relinkTwoVersions() {
  local path name stem
  local -A first=()
  for path in "$@"; do
    name=${path##*/}
    case $name in *.so.*) ;; *) continue ;; esac
    stem=${name%%.so.*}
    if [ -z "${first[$stem]:-}" ]; then
      first[$stem]=$name
    elif [ "${first[$stem]}" != "$name" ]; then
      printf '%s and %s\n' "${first[$stem]}" "$name"
    fi
  done
}

# LOADER PATH FILE MAPPED...: what the libraries are known to dlopen, found as they find it, and what that needs. The planner warns of a
# second version that arrives so, and so does this.
relinkFollow() {
  local loader=$1 shown=$2 index caller pattern directory found line pair
  local -a all=("${@:3}") more directories
  for caller in "${@:3}"; do
    for ((index = 0; index < ${#relinkDlopens[@]}; index += 2)); do
      pattern=${relinkDlopens[index]}
      case $caller in */"$pattern" | */"$pattern".*) ;; *) continue ;; esac
      IFS=: read -ra directories < <(patchelf --print-rpath "$caller")
      found=
      for directory in ${directories[@]+"${directories[@]}"}; do
        directory=${directory//'$ORIGIN'/${caller%/*}}
        more=()
        mapfile -t more < <(compgen -G "$directory/${relinkDlopens[index + 1]}" || :)
        if [ ${#more[@]} -gt 0 ]; then
          found=${more[0]}
          break
        fi
      done
      if [ -z "$found" ]; then continue; fi
      all+=("$found")
      while IFS= read -r line; do
        case $line in
          *" => not found"*)
            echo "relink: warning: $shown: ${line#"${line%%[![:space:]]*}"}, which ${found##*/} needs that ${caller##*/} dlopens" >&2
            ;;
          *" => "*" (0x"*)
            line=${line#* => }
            all+=("${line% (0x*}")
            ;;
        esac
      done < <(relinkTrace "$loader" "$found")
    done
  done
  while IFS= read -r pair; do
    echo "relink: warning: $shown: $pair in one process, one of them by dlopen (relink rules RLK130)" >&2
  done < <(relinkTwoVersions "${all[@]}" | sort -u)
}
