#!/usr/bin/env bash
# Take promtool and the server out of the Debian package `prometheus` into the directory $1; installs nothing on the system.
# Where that cannot be done it says so and succeeds: the chart is checked by helm alone then.
set -euo pipefail
bin=${1:?usage: promtool.sh DIRECTORY}

if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
  echo "promtool: not installed: that needs apt and root; put a promtool on the PATH instead" >&2
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work"
apt-cache show prometheus >/dev/null 2>&1 || apt-get -qq update
# The lists may be older than the mirror: one update, then once more.
apt-get -qq -o APT::Sandbox::User=root download prometheus || { apt-get -qq update; apt-get -qq -o APT::Sandbox::User=root download prometheus; }
dpkg-deb --extract prometheus_*.deb tree
install -D -m 755 -t "$bin" tree/usr/bin/promtool tree/usr/bin/prometheus
echo "promtool: $("$bin/promtool" --version 2>&1 | head -n 1)"
