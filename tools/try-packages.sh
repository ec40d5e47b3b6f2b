#!/usr/bin/env bash
# Try what was installed into ENVIRONMENT as VERSION, away from the sources: tools/try-packages.sh ENVIRONMENT VERSION
set -euo pipefail
clean=$(realpath "$1")
cd "$clean"
added=$(ls lib/python*/site-packages | comm -13 before - | sed "s/-$2\.dist-info$//" | sort -u | xargs)
test "$added" = "log_partitioner log_partitioner_native log_partitioner_pipeline" || { echo "Installed are: $added" >&2; exit 1; }
run() { env -i PATH="$clean/bin" LOGP_USER__PATHS=user "$@"; }
test "$(run log-partitioner --version)" = "log-partitioner $2"
run python -c 'from log_partitioner import native; assert native.IS_INSTALLED'
echo '{"user": "ann", "time": "2026-03-04T05:06:07Z"}' >sample.ndjson
run log-partitioner try sample.ndjson
run python -m log_partitioner_pipeline --help >/dev/null
