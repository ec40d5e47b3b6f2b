# Packages of Python, and the steps of a release. Included by the Makefile.
PACKAGES := dist/packages
CLEAN := .local/dist

##@ Release
.PHONY: dist release
dist: setup  ## build wheels and source distributions, and try them in an environment that has nothing else
	@tools/require-cargo.sh
	rm -rf $(PACKAGES) $(CLEAN)
	$(BIN)/python -c 'from setuptools.build_meta import build_sdist; build_sdist("$(PACKAGES)")' >/dev/null
	$(BIN)/maturin sdist --manifest-path native/Cargo.toml --out $(PACKAGES)
	PATH=$(abspath $(BIN)):$$PATH CARGO_TARGET_DIR=$(CURDIR)/.local/cargo $(BIN)/python -m pip wheel --quiet \
	  --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir $(PACKAGES) $(PACKAGES)/*.tar.gz
	$(PYTHON) -m venv $(CLEAN)
	$(CLEAN)/bin/python -I -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements.lock
	ls $(CLEAN)/lib/python*/site-packages >$(CLEAN)/before
	$(CLEAN)/bin/python -I -m pip install --quiet --disable-pip-version-check --no-deps $(PACKAGES)/*.whl
	tools/try-packages.sh $(CLEAN) $(VERSION)
	@ls -sh $(PACKAGES)

release:  ## check that this may be released, and say the steps; YES=1 does them
	VERSION=$(VERSION) YES=$(YES) BIN=$(BIN) tools/release.sh
