"""The control plane and the data plane over fakes."""
