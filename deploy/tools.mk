# Tools that check chart and alerts: helm by Go, promtool out of the Debian package. Included by the Makefile.
# Both land in .local/bin; what is on the PATH already is taken as it is.
HELM_VERSION := v3.22.0
KUBE_MINOR := 36
TOOLS_BIN := $(CURDIR)/.local/bin
# Without this a helm built by `go install` believes to talk to Kubernetes 1.20.
KUBE_FLAGS := -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$(KUBE_MINOR)

##@ Chart and alerts
.PHONY: chart-tools
chart-tools:  ## install helm (needs Go) and promtool (needs apt)
	@if command -v helm >/dev/null || test -x $(TOOLS_BIN)/helm; then echo "helm: present"; \
	elif command -v go >/dev/null; then \
	  echo "helm: building $(HELM_VERSION), some minutes the first time"; \
	  GOBIN=$(TOOLS_BIN) nice go install -ldflags "-s -w $(KUBE_FLAGS)" helm.sh/helm/v3/cmd/helm@$(HELM_VERSION); \
	else echo "helm: not installed: neither helm nor Go is here" >&2; exit 1; fi
	@if command -v promtool >/dev/null || test -x $(TOOLS_BIN)/promtool; then echo "promtool: present"; \
	else deploy/tools/promtool.sh $(TOOLS_BIN); fi

