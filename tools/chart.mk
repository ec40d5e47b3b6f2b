# Tools that check chart, alerts, dashboards and workflows: helm and actionlint by Go, promtool and prometheus out of the
# Debian package. Included by the Makefile.
# They land in .local/bin; what is on the PATH already is taken as it is.
HELM_VERSION := v3.22.0
ACTIONLINT_VERSION := v1.7.12
KUBE_MINOR := 36
TOOLS_BIN := $(CURDIR)/.local/bin
# Without this a helm built by `go install` believes to talk to Kubernetes 1.20.
KUBE_FLAGS := -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$(KUBE_MINOR)

##@ Chart and alerts
.PHONY: chart-tools
chart-tools:  # install helm and actionlint (need Go) and promtool (needs apt)
	@if command -v helm >/dev/null || test -x $(TOOLS_BIN)/helm; then echo "helm: present"; \
	elif command -v go >/dev/null; then \
	  echo "helm: building $(HELM_VERSION), some minutes the first time"; \
	  GOBIN=$(TOOLS_BIN) nice go install -ldflags "-s -w $(KUBE_FLAGS)" helm.sh/helm/v3/cmd/helm@$(HELM_VERSION); \
	else echo "helm: not installed: neither helm nor Go is here" >&2; exit 1; fi
	@if command -v actionlint >/dev/null || test -x $(TOOLS_BIN)/actionlint; then echo "actionlint: present"; \
	else GOBIN=$(TOOLS_BIN) nice go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION) \
	  || echo "actionlint: not installed: Go is not here, or cannot fetch it" >&2; fi
	@PATH=$(TOOLS_BIN):$$PATH; if command -v promtool >/dev/null && command -v prometheus >/dev/null; then echo "promtool: present"; \
	else tools/promtool.sh $(TOOLS_BIN); fi

.PHONY: chart
chart: chart-tools  ## lint and render the chart, check the alerts
	@PATH=$(TOOLS_BIN):$$PATH; for values in helm/log-partitioner/ci/*-values.yaml; do for replicas in 1 3; do \
	  helm lint --strict helm/log-partitioner -f $$values --set replicaCount=$$replicas; \
	  helm template log-partitioner helm/log-partitioner -f $$values --set replicaCount=$$replicas >/dev/null; done; done
	@PATH=$(TOOLS_BIN):$$PATH; if command -v promtool >/dev/null; then \
	  promtool check rules helm/log-partitioner/files/log-partitioner.rules.yaml; \
	  promtool test rules tests/deployment/log-partitioner.test.yaml; \
	  else echo "promtool: absent: the alerts are not checked" >&2; fi

.PHONY: docs
docs: setup  ## write the pages that are made from code, the demo's picture, the chart's schema and README
	$(BIN)/python -m tools.docs

SITE := .local/site
.PHONY: site
site: $(SITE)/.installed  ## all pages as one site with a search, in dist/site; a warning is an error
	$(SITE)/bin/sphinx-build -q -n -W --keep-going -c docs . dist/site
	@echo "dist/site/docs/index.html"

$(SITE)/.installed: requirements-site.lock
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-site.lock
	@touch $@
