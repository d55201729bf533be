# shellcheck shell=bash
# After everything else that fixup does: edit what $relinkPlan says, then ask the loader.

source @functions@

# The vendor's files are edited by the plan and by nothing else: GPU code does not survive strip, --shrink-rpath drops directories
# that only dlopen uses, autoPatchelfHook writes search paths of its own. All of them read these when they run.
dontStrip=1
dontPatchELF=1
dontAutoPatchelf=1

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
appendToVar postPhases relinkSealedPhase
