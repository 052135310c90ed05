"""Read the resources of a Kubernetes cluster: nodes, devices, quotas, and requests of pods that are not Daylight's."""
