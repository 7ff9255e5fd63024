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
"$root/docker/layout.sh" "$prefix"
