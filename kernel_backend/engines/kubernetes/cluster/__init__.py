"""Read what a Kubernetes cluster has: nodes, devices, quotas, and what other pods hold."""
