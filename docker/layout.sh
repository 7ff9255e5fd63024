#!/usr/bin/env bash
# Lays out what the runtime image copies, from the programs in build/release: layout.sh PREFIX (/opt/ddprun in the image).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
prefix=$1
# shellcheck source=scripts/lib/setup.sh
. "$root/scripts/lib/setup.sh"

mkdir -p "$prefix/bin" "$prefix/lib" "$prefix/share"
install --strip -t "$prefix/bin" "$root/build/release/bin/ddprun" "$root/build/release/bin/digits"
# LibTorch and what its wheel brings along.
ldd "$root/build/release/bin/digits" | awk -v cache="$ddprun_cache_dir/" 'index($3, cache) == 1 { print $3 }' | sort -u |
  xargs -r cp -L -t "$prefix/lib"
cp "$ddprun_cache_dir"/digits/* "$prefix/share/"
# Licences: ours, those of the libraries that are linked in, and torch's.
doc="$prefix/share/doc/ddprun"
mkdir -p "$doc/copyright"
cp "$root/LICENSE" "$root/NOTICE" "$doc/"
sed -n 's/^\([a-z][^ ]*\) .*/\1/p' "$root/cmake/linked_libraries.txt" | while read -r package; do
  cp -L "/usr/share/doc/$package/copyright" "$doc/copyright/$package"
done
cp -r "$ddprun_cache_dir"/libtorch/lib/python3*/site-packages/torch-*.dist-info/licenses "$doc/torch"
