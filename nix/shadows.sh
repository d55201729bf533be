# shellcheck shell=bash
# For the shellHook of a development shell: LD_LIBRARY_PATH is searched before a library's RUNPATH, so what is there is loaded
# in the place of what the plan says. /run/opengl-driver/lib often is, and has a HIP of its own where the system was given one.

# NAME [SONAME DIRECTORY]...: what the package NAME was linked with.
relinkShadows() {
  local name=$1 directory soname
  local -a directories
  shift
  [ -n "${LD_LIBRARY_PATH:-}" ] || return 0
  IFS=: read -ra directories <<< "$LD_LIBRARY_PATH"
  while [ $# -gt 0 ]; do
    soname=$1
    for directory in "${directories[@]}"; do
      directory=${directory:-.}
      if [ -e "$directory/$soname" ]; then
        # The same file by another path is no other library.
        if [ -e "$2/$soname" ] && ! [ "$directory/$soname" -ef "$2/$soname" ]; then
          echo "relink: LD_LIBRARY_PATH has $directory, whose $soname is loaded instead of $2/$soname, which $name was linked with; leave that directory out of LD_LIBRARY_PATH" >&2
        fi
        break
      fi
    done
    shift 2
  done
}
