"""Read the resources of a Kubernetes cluster: nodes, devices, quotas, and what all other pods request."""
