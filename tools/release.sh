#!/usr/bin/env bash
# Check that the commit that stands here may be released as VERSION, then say the steps; with YES=1 do them.
set -euo pipefail
cd "$(dirname "$0")/.."
refuse() { echo "Not released: $1" >&2; exit 1; }
test -z "$(git status --porcelain)" || refuse "there are changes that are in no commit"
git rev-parse --quiet --verify "refs/tags/v$VERSION" >/dev/null && refuse "there is a tag v$VERSION: change version in pyproject.toml"
grep --quiet "^## \[$VERSION\] - 20..-..-..$" CHANGELOG.md || refuse "CHANGELOG.md has no heading ## [$VERSION] - $(date -u +%F)"
! grep --quiet '^## \[Unreleased\]' CHANGELOG.md || refuse "CHANGELOG.md still has a part Unreleased"
"$BIN"/python -m tools.docs --check || refuse "run make docs, commit what it wrote"
step() { echo "+ $*"; if test "${YES:-}" = 1; then "$@"; fi; }
step make lint type dist
step make image
step helm package helm/log-partitioner --destination dist
step git tag --annotate "v$VERSION" --message "Version $VERSION"
test "${YES:-}" = 1 || echo "Nothing was done: make release YES=1 does it."
echo "Then: git push origin v$VERSION; make image-push REGISTRY=...; upload dist/packages/* and dist/log-partitioner-$VERSION.tgz"
