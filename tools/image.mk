# Images of the worker and of the pipeline, what is in them, and what is known against it. Included by the Makefile.
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
REVISION := $(shell git rev-parse HEAD 2>/dev/null)
NAME := $(if $(REGISTRY),$(REGISTRY)/)log-partitioner
BUILD := docker build
ARGS_OF_BUILD = --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) $(SOURCE:%=--build-arg SOURCE=%) $(BASE:%=--build-arg BASE=%)

##@ Images
.PHONY: image image-push sbom advisories
image:  ## build both images (needs Docker); REGISTRY=, BASE=, SOURCE=, BUILD=: docs/CONTRIBUTING.md
	DOCKER_BUILDKIT=1 $(BUILD) $(ARGS_OF_BUILD) --target worker --tag $(NAME):$(VERSION) .
	DOCKER_BUILDKIT=1 $(BUILD) $(ARGS_OF_BUILD) --target pipeline --tag $(NAME)-pipeline:$(VERSION) .

image-push:  ## build both images and push them to REGISTRY=
	$(if $(REGISTRY),,$(error Set REGISTRY=, such as registry.example/team))
	@$(MAKE) --no-print-directory image
	docker push $(NAME):$(VERSION)
	docker push $(NAME)-pipeline:$(VERSION)

sbom: image  ## copy SBOM (CycloneDX) and licences of both images to dist/
	for part in '' -pipeline; do container=$$(docker create $(NAME)$$part:$(VERSION)); mkdir -p dist/log-partitioner$$part; \
	  docker cp $$container:/usr/share/doc/log-partitioner/. dist/log-partitioner$$part; docker rm --volumes $$container >/dev/null; done

# Without --strict pip-audit passes over each package that its database does not answer for, and calls that clean.
advisories: setup  ## known vulnerabilities of packages and crates; fails, too, if their databases are out of reach
	@code=0; export PATH=$(TOOLS_BIN):$$PATH; \
	$(BIN)/pip-audit --strict --disable-pip --require-hashes -r requirements-pipeline.lock || code=1; \
	command -v cargo-audit >/dev/null || cargo install --quiet --locked --root .local cargo-audit || code=1; \
	cargo audit --file native/Cargo.lock || code=1; \
	test $$code = 0 || { echo "advisories: NOT CLEAN, or not looked at: see above" >&2; exit 1; }
