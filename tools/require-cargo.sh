#!/usr/bin/env bash
# Is there a cargo that builds the fast lane? Says where to get one if not.
set -euo pipefail
needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../native/Cargo.toml")
found=$(cargo --version 2>/dev/null | cut -d' ' -f2 || true)
if [[ -z $found || $(printf '%s\n' "$needed" "$found" | sort -V | head -1) != "$needed" ]]; then
  echo "The fast lane needs cargo $needed or newer; found ${found:-none}. Debian 12: apt-get install cargo-web;" \
    "Debian 13: apt-get install cargo; elsewhere: rustup. Without it everything works, in Python." >&2
  exit 1
fi
