"""Authenticate browsers through JupyterHub's OAuth, with its cookies and its XSRF check."""

from __future__ import annotations

from jupyterhub.services.auth import HubOAuth, HubOAuthCallbackHandler
from tornado.httputil import url_concat
from tornado.web import RequestHandler

from kernel_backend.identity.hub import HubIdentity
from kernel_backend.model.cluster.people import Person


class HubBrowsers:
    """Provider that identifies users of browsers by the hub token in a signed cookie."""

    def __init__(self, auth: HubOAuth, identity: HubIdentity) -> None:
        self._auth, self._identity = auth, identity

    async def who(self, handler: RequestHandler, *, remembered: bool = False) -> Person | None:
        """Return the signed-in user; None if there is none, or if the request lacks the pages' XSRF token."""
        token = self.token(handler)
        if not token:
            return None
        # The hub checks `_xsrf` itself before the user is looked up.
        person = await self._identity.verified(token, self._auth.get_user(handler, sync=False), remembered)
        if person is not None:
            _ = handler.xsrf_token  # sets the cookie
        return person

    def token(self, handler: RequestHandler) -> str:
        """Return the hub token from the cookie that was set after signing in."""
        return self._auth.get_token(handler) or ""

    @property
    def links(self) -> dict[str, str]:
        """Return the URLs of the hub's home page and of the user's server, by the text of their links."""
        hub = f"{self._auth.hub_host}{self._auth.hub_prefix}"
        return {"Home": f"{hub}home", "My server": f"{hub}user-redirect/"}

    def sign_in(self, handler: RequestHandler) -> str:
        """Return the hub's sign-in URL, with an OAuth state that only this browser can return."""
        verifier, challenge, method = self._auth.generate_pkce_code_challenge()
        state = self._auth.set_state_cookie(handler, next_url=handler.request.uri, code_verifier=verifier)
        asked = {"state": state, "code_challenge": challenge, "code_challenge_method": method}
        return str(url_concat(self._auth.login_url, asked))

    def callback(self) -> type[RequestHandler]:
        """Return the handler to which the hub redirects browsers."""
        return type("Callback", (HubOAuthCallbackHandler,), {"hub_auth": self._auth})
