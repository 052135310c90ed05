"""Print the OpenAPI document of the service, made from its code; no service has to run."""

from __future__ import annotations

import json

from kernel_backend.api.openapi import document
from kernel_backend.api.routes import ROUTES

if __name__ == "__main__":
    print(json.dumps(document(ROUTES), indent=2))
