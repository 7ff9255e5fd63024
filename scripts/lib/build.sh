# shellcheck shell=bash
# Configure and build with a CMake preset. Sourced after setup.sh, with $root set and pipefail on.

# What one checkout compiled, another one finds in the cache: paths count from the root.
export CCACHE_BASEDIR="${root:?}" CCACHE_NOHASHDIR=1

# build_jobs: one compiler for each core, but not more than memory carries: a LibTorch translation
# unit takes 1.3 GB.
build_jobs() {
  local cores memory_kib jobs
  cores=$(nproc)
  memory_kib=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)
  jobs=$((memory_kib / 1500000))
  [ "$jobs" -ge 1 ] || jobs=1
  [ "$jobs" -le "$cores" ] || jobs=$cores
  printf '%s\n' "$jobs"
}

# build_preset PRESET [-DOPTION=…]… -- TARGET…: no target means all.
build_preset() {
  local preset=$1 options=() targets=() jobs log
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  [ $# -eq 0 ] || shift
  [ $# -eq 0 ] || targets=(--target "$@")
  jobs=$(build_jobs)
  log="$root/build/$preset-build.log"
  mkdir -p "$root/build"
  say "Building preset '$preset' with $jobs jobs${*:+: $*} (log: ${log#"$root/"})"
  if ! (cd "$root" && cmake --preset "$preset" "${options[@]}") >"$log" 2>&1; then
    tail -n 25 "$log" >&2
    fail "cmake could not configure preset '$preset'" "whole log: $log"
  fi
  if ! (cd "$root" && NINJA_STATUS='[%f/%t %es] ' cmake --build "build/$preset" --parallel "$jobs" \
    "${targets[@]}") 2>&1 | tee -a "$log" | build_progress; then
    grep -E 'error|FAILED' "$log" | head -n 20 >&2 || true
    tail -n 25 "$log" >&2
    fail "the build of preset '$preset' failed" "whole log: $log"
  fi
}

# build_progress: a line about every tenth of the way, so that logs stay short.
build_progress() {
  local line seconds finished total last=-1 tenth
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\ ([0-9.]+)s\] ]] || continue
    finished=${BASH_REMATCH[1]}
    total=${BASH_REMATCH[2]}
    seconds=${BASH_REMATCH[3]}
    tenth=$((finished * 10 / total))
    if [ "$tenth" -ne "$last" ]; then
      printf '    %3d %%  %s of %s steps, %s s\n' $((finished * 100 / total)) "$finished" "$total" "$seconds"
      last=$tenth
    fi
  done
}
