#!/usr/bin/env bash
# Builds ddprun and the example and lays out /opt/ddprun for the runtime image. Called by the Dockerfile.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
prefix=${1:-/opt/ddprun}
# shellcheck source=scripts/lib/setup.sh
. "$root/scripts/lib/setup.sh"
# shellcheck source=scripts/lib/build.sh
. "$root/scripts/lib/build.sh"

build_preset release -DDDPRUN_TESTS=OFF -DDDPRUN_BENCH=OFF -- ddprun digits
mkdir -p "$prefix/bin" "$prefix/lib" "$prefix/share"
install --strip -t "$prefix/bin" "$root/build/release/bin/ddprun" "$root/build/release/bin/digits"
# LibTorch and what its wheel brings along; Debian's own libraries come as packages.
ldd "$root/build/release/bin/digits" | awk '$3 ~ "^/opt/cache/" { print $3 }' | sort -u |
  xargs -r cp -L -t "$prefix/lib"
cp "$ddprun_cache_dir"/digits/* "$prefix/share/"
