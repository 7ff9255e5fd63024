#!/usr/bin/env bash
# The builder image's packages and LibTorch: what scripts/demo installs. Called by the Dockerfile.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/lib/setup.sh
. "$root/scripts/lib/setup.sh"
# shellcheck source=scripts/lib/torch_env.sh
. "$root/scripts/lib/torch_env.sh"
ensure_packages "to build ddprun" "${ddprun_build_packages[@]}"
ensure_libtorch
ensure_digits
