# shellcheck shell=bash
# After everything else that fixup does: edit what $relinkPlan says, then ask the loader.

source @functions@

relinkHook() {
  if [ -z "${relinkPlan:-}" ]; then
    echo "relink: relinkHook without relinkPlan; set relinkPlan = relinkHook.plan { plan = ./name.json; }" >&2
    return 1
  fi
  source "$relinkPlan"
  relinkEdits
  relinkChecks
}

postFixupHooks+=(relinkHook)
