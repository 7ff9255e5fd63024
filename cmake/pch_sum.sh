#!/bin/sh
# pch_sum.sh COMMAND …: runs a compiler's command, and where it made precompiled headers, writes their checksum beside them:
# ccache hashes that (CCACHE_PCH_EXTSUM) for each unit that sees them, instead of 700 MB.
set -e
"$@"
while [ $# -gt 0 ]; do
  case $1 in
    -o) case $2 in *.gch) b2sum <"$2" >"$2.sum" ;; esac ;;
  esac
  shift
done
