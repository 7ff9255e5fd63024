#!/bin/sh
# pch_sum.sh COMMAND …: runs a compiler's command, and where it makes precompiled headers, writes their checksum beside them:
# ccache hashes that (CCACHE_PCH_EXTSUM) for each unit that sees them, instead of 700 MB. Older ones go first: ccache takes
# what lies there for something that is included.
set -e
headers=$(printf '%s\n' "$@" | grep '\.gch$' | sort -u)
if [ -z "$headers" ]; then
  exec "$@"
fi
rm -f "$headers" "$headers.sum"
"$@"
b2sum <"$headers" >"$headers.sum"
