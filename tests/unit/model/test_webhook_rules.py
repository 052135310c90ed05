"""Test allowed addresses of webhooks, signatures of messages, and when a webhook is switched off."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.webhooks.rules import (
    DAY_S,
    HostRules,
    address_problem,
    check_secret,
    check_url,
    host_of,
    new_secret,
    patterns_problem,
    reason_off,
    redacted,
    signature,
)

ALL, HUB = HostRules(), HostRules(inside=False, mail=True)
NETWORK = HostRules(hosts=("*",), inside=False)
SITE = HostRules(hosts=("*.example.org", "localhost"), inside=False, mail=True)


@pytest.mark.parametrize(
    ("url", "rules"),
    [
        ("https://example.org/hook?room=1", HUB),
        ("http://127.0.0.1:8000/", ALL),
        ("http://93.184.216.34/", HUB),
        ("http://[64:ff9b::5db8:d822]/", HUB),  # 93.184.216.34 through NAT64
        ("http://[2606:4700::1111]/", HUB),
        ("http://10.1.2.3/", ALL),
        ("http://10.1.2.3/", NETWORK),
        ("http://[fd12::1]/", NETWORK),
        ("https://user:word@hooks.example.org:8443/a", SITE),
        ("http://localhost/", SITE),
        ("mailto:dave@mail.example.org", SITE),
        ("mailto:dave@example.org", HUB.model_copy(update={"links": True})),
        ("mailto:dave@example.org", HostRules(mail=True)),
    ],
)
def test_what_rules_allow_is_allowed(url: str, rules: HostRules) -> None:
    check_url(url, rules)


@pytest.mark.parametrize(
    ("url", "rules", "reason"),
    [
        ("ftp://example.org", ALL, "must begin with https://"),
        ("file:///etc/passwd", ALL, "must begin with https://"),
        ("example.org", ALL, "must begin with https://"),
        ("https://", ALL, "names no host"),
        ("https://example.org:99999/", ALL, "is no address"),
        ("https://example.org/\r\nX-Header: 1", ALL, "has blanks"),
        ("https://exämple.org/", ALL, "not ASCII"),
        ("https://example.org\\@127.0.0.1/", HUB, "is no address"),
        ("http://127.0.0.1/", HUB, "an address within this machine"),
        ("http://[::1]/", HUB, "an address within this machine"),
        ("http://[::ffff:127.0.0.1]/", HUB, "127.0.0.1, an address within this machine"),
        ("http://169.254.169.254/latest", HUB, "an address within this machine"),
        ("http://[fd00:ec2::254]/", HUB, "an address within this machine"),
        ("http://0.0.0.0/", HUB, "an address within this machine"),
        ("https://example.org.evil.net/", SITE, "is no host that this service may send to"),
        ("mailto:dave@evil.net", SITE, "evil.net is no host"),
        ("mailto:dave@example.org", ALL, "sends no mail"),
        ("mailto:dave@example.org", HUB, r"an admin lists its domain in c\.Daylight\.webhook_hosts, or sets c\.Dayl"),
        ("mailto:dave@evil.net", SITE.model_copy(update={"links": True}), "evil.net is no host"),
        ("mailto:dave@example.org?bcc=eve@example.org", HUB, "names no host"),
        ("mailto:dave@example.org,eve@example.org", HUB, "names no host"),
    ],
)
def test_what_rules_do_not_allow_is_refused_with_the_reason(url: str, rules: HostRules, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        check_url(url, rules)


INSIDE = (
    *("100.100.100.200", "100.64.0.1", "192.0.0.192", "168.63.129.16", "169.254.169.254", "240.0.0.1", "224.0.0.1"),
    *("fd20:ce::254", "fd00:ec2::254", "fd00:ec2::23", "fd00:c1::a9fe:a9fe", "fd00:42::42", "fe80::a9fe:a9fe"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b::6464:64c8", "::ffff:168.63.129.16", "2002:a9fe:a9fe::1", "2002:7f00:1::"),
    *("2001:0:4136:e378:8000:63bf:5601:5601", "::7f00:1"),  # Teredo, and IPv4-compatible
)


@pytest.mark.parametrize("address", INSIDE)
@pytest.mark.parametrize("rules", [HUB, NETWORK])
def test_addresses_of_credentials_and_of_the_machine_are_refused_in_all_forms(address: str, rules: HostRules) -> None:
    url = f"http://[{address}]/" if ":" in address else f"http://{address}/"
    with pytest.raises(InvalidRequest, match="within this machine or of a cloud's credentials"):
        check_url(url, rules)
    assert "within this machine" in address_problem("hooks.example.org", address, SITE)


PRIVATE = ("10.1.2.3", "172.16.0.1", "192.168.1.1", "198.18.0.1", "fd12::1", "64:ff9b::a01:203", "2002:c0a8:101::")


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_of_private_networks_are_refused_unless_an_admin_lists_their_hosts(address: str) -> None:
    assert "lists its host in webhook_hosts" in address_problem("hooks.example.org", address, HUB)
    assert address_problem("hooks.example.org", address, SITE) == ""


def test_a_name_may_not_lead_into_the_machine_unless_an_admin_lists_it() -> None:
    assert "within this machine" in address_problem("hooks.example.org", "127.0.0.1", SITE)
    assert "within this machine" in address_problem("hooks.example.org", "fe80::1%eth0", SITE)
    assert address_problem("localhost", "127.0.0.1", SITE) == ""
    assert address_problem("hooks.example.org", "192.0.2.7", SITE) == ""
    assert address_problem("hooks.example.org", "127.0.0.1", ALL) == ""
    assert host_of("HTTPS://Hooks.Example.ORG./x") == "hooks.example.org"


def test_what_may_be_secret_in_an_address_is_not_shown() -> None:
    assert redacted("https://dave:word@example.org:8443/services/T0123456789ABC/x?key=word&room=1#a") == (
        "https://***@example.org:8443/services/***/x?key=***&room=***"
    )
    assert redacted("https://example.org/hook") == "https://example.org/hook"


def test_a_signature_is_that_of_standard_webhooks() -> None:
    key = bytes(range(24))
    secret = new_secret(key)
    expected = hmac.new(key, b'msg_1.1700000000.{"a": 1}', hashlib.sha256).digest()
    assert signature(secret, "msg_1", 1700000000, b'{"a": 1}') == "v1," + base64.b64encode(expected).decode()
    check_secret(secret)
    for wrong in ("", "word", "whsec_short", "whsec_" + "A" * 200, secret.removeprefix("whsec_"), "whsec_!!!!"):
        with pytest.raises(InvalidRequest, match="must be whsec_ and 24 to 64 bytes"):
            check_secret(wrong)


def test_a_webhook_is_switched_off_after_a_day_of_failures_or_when_it_is_gone() -> None:
    assert reason_off("500", since=0.0, now=DAY_S - 1, tries=99, gone=False) == ""
    assert reason_off("500", since=0.0, now=DAY_S, tries=1, gone=False) == ""  # the service was down meanwhile
    assert reason_off("500", since=0.0, now=DAY_S, tries=4, gone=False) == "it has failed for a day: 500"
    assert "it is gone" in reason_off("410", since=0.0, now=0.0, tries=1, gone=True)


def test_a_list_of_hosts_holds_names_and_patterns() -> None:
    assert patterns_problem(["*.example.org", "10.0.0.?", "::1"]) == ""
    assert "'https://example.org' is no host" in patterns_problem(["example.org", "https://example.org"])
