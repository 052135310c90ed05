"""Test the settings that `daylight(c)` adds to a hub's configuration, whatever it holds already."""

from __future__ import annotations

import os
import pwd
from typing import Any

import pytest
from traitlets.config import Config

from jupyter_ext.hub import daylight
from jupyter_ext.hub.configure import ADMIN, MONITOR, SUBMIT, USES


def roles(c: Any) -> dict[str, Any]:
    return {role["name"]: role for role in plain(c.JupyterHub.load_roles)}


def plain(value: Any) -> Any:
    return value.get_value([]) if hasattr(value, "get_value") else value


def test_everybody_may_submit_unless_it_is_said_who() -> None:
    c = Config()
    daylight(c, home="/srv/daylight", admins=["ada"])
    assert {USES, SUBMIT, "self"} == set(roles(c)["user"]["scopes"])
    assert roles(c)["daylight-admin"]["users"] == ["ada"]
    few = Config()
    daylight(few, home="/srv/daylight", groups=["vision"])
    assert "user" not in roles(few)
    assert roles(few)["daylight-submit"]["groups"] == ["vision"]


def test_a_server_may_what_its_owner_may() -> None:
    c = Config()
    daylight(c, home="/srv/daylight")
    assert {"users:activity!user", "access:servers!server", USES, SUBMIT, ADMIN} <= set(roles(c)["server"]["scopes"])


def test_what_the_configuration_has_stays() -> None:
    c = Config()
    c.JupyterHub.services = [{"name": "other"}]
    c.JupyterHub.load_roles = [{"name": "user", "scopes": ["self", "shares!user"]}, {"name": "theirs", "scopes": []}]
    c.JupyterHub.custom_scopes = {"custom:theirs": {"description": "theirs"}}
    c.Spawner.environment = {"A": "1"}
    daylight(c, home="/srv/daylight")
    assert [each["name"] for each in c.JupyterHub.services] == ["other", "daylight"]
    assert roles(c)["user"]["scopes"] == ["self", "shares!user", USES, SUBMIT]
    assert "theirs" in roles(c)
    assert set(c.JupyterHub.custom_scopes) == {"custom:theirs", SUBMIT, ADMIN, MONITOR}
    assert set(c.Spawner.environment) == {"A", "DAYLIGHT_URL", "DAYLIGHT_SERVICE_UID"}


def test_what_was_only_added_to_before_stays_too() -> None:
    c = Config()
    c.JupyterHub.services.append({"name": "other"})
    c.JupyterHub.load_roles.append({"name": "user", "scopes": ["self"]})
    c.Spawner.environment.update({"A": "1"})
    daylight(c, home="/srv/daylight")
    assert [each["name"] for each in plain(c.JupyterHub.services)] == ["other", "daylight"]
    assert roles(c)["user"]["scopes"] == ["self", USES, SUBMIT]
    assert set(c.Spawner.environment.get_value({})) == {"A", "DAYLIGHT_URL", "DAYLIGHT_SERVICE_UID"}


def test_notebook_servers_are_told_where_it_is_below_the_hubs_base() -> None:
    c = Config()
    c.JupyterHub.base_url = "/jupyter/"
    daylight(c, home="/srv/daylight", url="http://0.0.0.0:10180", address="http://hub:10180")
    assert c.Spawner.environment["DAYLIGHT_URL"] == "http://hub:10180/jupyter/services/daylight"


def test_notebook_servers_are_told_whose_process_the_service_is() -> None:
    c, other = Config(), Config()
    daylight(c, home="/srv/daylight")
    assert c.Spawner.environment["DAYLIGHT_SERVICE_UID"] == str(os.getuid())
    daylight(other, home="/srv/daylight", accounts="nobody")
    assert other.Spawner.environment["DAYLIGHT_SERVICE_UID"] == str(pwd.getpwnam("nobody").pw_uid)
    with pytest.raises(ValueError, match="accounts='no-such-user': there is no such account on this machine"):
        daylight(Config(), home="/srv/daylight", accounts="no-such-user")


def test_the_service_is_run_with_what_it_is_to_be_run_with() -> None:
    c = Config()
    daylight(c, home="/srv/daylight", slots=3, options=["--checkpoints=s3://bucket/runs"], environment={"B": "2"})
    (service,) = c.JupyterHub.services
    assert service["command"][1:] == [
        *("-P", "-m", "kernel_backend", "--hub"),
        *("--home=/srv/daylight", "--slots=3", "--checkpoints=s3://bucket/runs"),
    ]
    assert service["environment"] == {"B": "2"}
    assert set(service["oauth_client_allowed_scopes"]) == {USES, SUBMIT, ADMIN}


def test_the_url_of_its_database_is_not_in_the_command_that_the_hub_logs() -> None:
    c, url = Config(), "postgresql://daylight:secret@db/daylight"
    daylight(c, home="/srv/daylight", db_url=url)
    (service,) = c.JupyterHub.services
    assert service["environment"] == {"DAYLIGHT_DB_URL": url}
    assert not any("secret" in each for each in service["command"])


def test_with_accounts_the_service_runs_as_its_own_user_beside_the_spawn_helper() -> None:
    c = Config()
    daylight(c, home="/srv/daylight", accounts="nobody")
    (service,) = c.JupyterHub.services
    assert service["user"] == "nobody"
    assert service["command"][-1] == "--spawn-helper=/run/daylight/spawn.sock"
    daylight(other := Config(), home="/srv/daylight")
    assert "user" not in other.JupyterHub.services[0]


def test_with_kubespawner_the_service_is_a_deployment_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYLIGHT_HUB_TOKEN", "a token")
    c = Config()
    c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
    daylight(c)
    (service,) = c.JupyterHub.services
    assert (service["url"], service["api_token"]) == ("http://daylight.daylight.svc:10180", "a token")
    assert "command" not in service
    assert c.Spawner.environment == {"DAYLIGHT_URL": "http://daylight.daylight.svc:10180/services/daylight"}


def test_an_entry_of_the_chart_keeps_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAYLIGHT_HUB_TOKEN", raising=False)
    c = Config()
    c.JupyterHub.spawner_class = type("Ours", (type("KubeSpawner", (), {}),), {})
    with pytest.raises(ValueError, match="DAYLIGHT_HUB_TOKEN: set it to the token"):
        daylight(c)
    c.JupyterHub.services = [{"name": "daylight", "api_token": "the chart's"}]
    daylight(c)
    (service,) = c.JupyterHub.services
    assert (service["url"], service["api_token"]) == ("http://daylight.daylight.svc:10180", "the chart's")


def test_settings_of_the_service_are_refused_where_the_hub_does_not_start_it() -> None:
    c = Config()
    c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
    with pytest.raises(ValueError, match="home, slots: with KubeSpawner the deployment of the service has these"):
        daylight(c, home="/srv/daylight", slots=4)
    daylight(c, home="/srv/daylight", url="http://hub:10180", slots=4)  # the hub starts it all the same
    assert "command" in plain(c.JupyterHub.services)[0]
    with pytest.raises(ValueError, match="home: name the folder of the service"):
        daylight(Config())
