"""Decide which addresses webhooks may have, how their messages are signed, and when a webhook is switched off."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from urllib.parse import SplitResult, urlsplit, urlunsplit

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Record
from kernel_backend.model.webhooks.records import StoredWebhook

DAY_S = 86_400.0
ADMIN_S = 7 * DAY_S  # an owner who was seen to be an admin so long ago may be none any more
TRIES = 4  # a service that was down for a day tries so often before it gives up
HIDDEN = "***"
SECRET = "whsec_"  # prefix of a secret: the rest is its key in base64
_LONGEST_SHOWN = 12  # characters of a path's segment; longer ones are often tokens
_KEY_BYTES = (24, 64)
# Clouds' servers of credentials that are not link-local: of Alibaba (among carriers' NAT), Oracle and Azure; by IPv6
# of AWS, Oracle, Google and Scaleway.
_CREDENTIALS = [
    ipaddress.ip_network(each)
    for each in (
        *("100.64.0.0/10", "192.0.0.0/24", "168.63.129.16"),
        *("fd00:ec2::/32", "fd00:c1::/32", "fd20:ce::/32", "fd00:42::/32"),
    )
]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_ADDRESS = re.compile(r"[^@\s,;:<>\"()\[\]\\%?&]{1,64}@[A-Za-z0-9.-]{1,253}")


class HostRules(Record):
    """Hosts to which messages may be sent; empty `hosts` allow all.

    A host is a name or a pattern such as `*.example.org`. If `inside` is False, addresses that are not reachable from
    the whole internet are refused, unless `hosts` lists the host; addresses within this machine, link-local ones and
    those of clouds' credentials, unless it does so without a wildcard; and mail goes only to listed domains, since its
    text is the users' and its receivers have not asked for it, or to addresses that were confirmed by a link.
    """

    hosts: tuple[str, ...] = ()
    inside: bool = True
    mail: bool = False  # whether the service can send mail
    links: bool = False  # whether it knows its address in browsers, for links in mail


def check_url(url: str, rules: HostRules) -> None:
    """Raise InvalidRequest unless messages may be sent to this address."""
    parts = _split(url)
    if parts.scheme not in ("http", "https", "mailto"):
        raise InvalidRequest(f"url: must begin with https://, http:// or mailto:, not {ascii(url)[:100]}")
    if parts.scheme == "mailto" and not rules.mail:
        raise InvalidRequest("this service sends no mail: an admin sets c.Daylight.smtp_url in its configuration")
    host = host_of(url)
    if not host:
        raise InvalidRequest(f"url: names no host: {ascii(redacted(url))[:100]}")
    if not _is_listed(host, rules):
        raise InvalidRequest(f"{host} is no host that this service may send to: {', '.join(rules.hosts)}")
    if must_be_confirmed(url, rules) and not rules.links:
        raise InvalidRequest(
            f"no mail may go to {host}: an admin lists its domain in c.Daylight.webhook_hosts, or sets "
            "c.Daylight.public_url, since this service does not know its address for a link that confirms yours"
        )
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return
    if problem := address_problem(host, str(address), rules):
        raise InvalidRequest(problem)


def must_be_confirmed(url: str, rules: HostRules) -> bool:
    """Return whether messages may be sent to an address only after its owner has opened a link in a mail."""
    return _split(url).scheme == "mailto" and not rules.inside and not rules.hosts


def unconfirmed(hook: StoredWebhook, rules: HostRules, now: float) -> str:
    """Return what is to be done before messages are sent to a webhook; "" if they are sent.

    A right is asked when it is used. Under a hub the service learns of an admin's when they use Daylight.
    """
    if hook.link and now - hook.at > DAY_S:
        return "it was not confirmed within a day: remove it, and add it again for another mail"
    if hook.link:
        return "it waits for confirmation, by the link in the mail to this address"
    if hook.everyone and not rules.inside and now - (hook.admin_at or 0.0) > ADMIN_S:
        return f"it waits until {hook.owner} uses Daylight as an admin again, which nobody has seen for a week"
    return ""


def host_of(url: str) -> str:
    """Return the host of a URL in lower case, or the domain of a mail address; "" if there is none."""
    parts = _split(url)
    if parts.scheme == "mailto":
        address = url.partition(":")[2]
        return address.rpartition("@")[2].lower() if _ADDRESS.fullmatch(address) else ""
    return (parts.hostname or "").rstrip(".")


def address_problem(host: str, address: str, rules: HostRules) -> str:
    """Return why no message may be sent to a host at this IP address; "" if it may be sent."""
    if not _is_listed(host, rules):
        return f"{host} is no host that this service may send to"
    if rules.inside or host in map(str.lower, rules.hosts):
        return ""
    found = _embedded(ipaddress.ip_address(address.partition("%")[0]))
    if _is_inside(found):
        return (
            f"{host} is {found}, an address within this machine or of a cloud's credentials: "
            "messages go to other machines"
        )
    if not found.is_global and not rules.hosts:
        return f"{host} is {found}, an address of a private network: an admin lists its host in webhook_hosts"
    return ""


def _embedded(address: _Address) -> _Address:
    """Return the IPv4 address that an IPv6 address embeds and leads to; the address itself if it embeds none."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo[1] if address.teredo else None
    return address.ipv4_mapped or address.sixtofour or teredo or address


def _is_inside(address: _Address) -> bool:
    special = address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
    return special or address.is_reserved or any(address in each for each in _CREDENTIALS)


def redacted(url: str) -> str:
    """Return an address in which user, password, query values and possible tokens in the path are hidden."""
    parts = _split(url)
    if parts.scheme == "mailto":
        return url
    netloc = parts.netloc.rpartition("@")[2]
    path = "/".join(HIDDEN if len(each) > _LONGEST_SHOWN else each for each in parts.path.split("/"))
    query = "&".join(f"{each.partition('=')[0]}={HIDDEN}" for each in parts.query.split("&") if each)
    return urlunsplit((parts.scheme, f"{HIDDEN}@{netloc}" if "@" in parts.netloc else netloc, path, query, ""))


def check_secret(secret: str) -> None:
    """Raise InvalidRequest unless a secret is `whsec_` followed by 24 to 64 bytes in base64."""
    try:
        key = _key(secret)
    except (ValueError, binascii.Error):
        key = b""
    least, most = _KEY_BYTES
    if not secret.startswith(SECRET) or not least <= len(key) <= most:
        raise InvalidRequest(f"secret: must be {SECRET} and {least} to {most} bytes in base64; without one, it is made")


def new_secret(key: bytes) -> str:
    """Return a new secret of a webhook as text, made from the random bytes `key`."""
    return SECRET + base64.b64encode(key).decode()


def signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """Return a message's signature by the rules of Standard Webhooks: HMAC-SHA256 over id, timestamp and body."""
    signed = f"{id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(_key(secret), signed, hashlib.sha256).digest()).decode()


def reason_off(problem: str, since: float, now: float, tries: int, gone: bool) -> str:
    """Return why a webhook is switched off after a message to it failed; "" if the message is to be sent again.

    Messages have failed since `since`, and `tries` times in a row in this process. `gone` is True if the receiver wants
    no more messages.
    """
    if gone:
        return f"the receiver said that it is gone: {problem}"
    if now - since >= DAY_S and tries >= TRIES:
        return f"it has failed for a day: {problem}"
    return ""


def patterns_problem(hosts: Sequence[str]) -> str:
    """Return what is wrong with an admin's list of hosts; "" if it is valid."""
    wrong = [each for each in hosts if not re.fullmatch(r"[A-Za-z0-9.*?:-]+", each)]
    return f"{wrong[0]!r} is no host: write a name such as hooks.example.org, or *.example.org" if wrong else ""


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(SECRET), validate=True)


def _is_listed(host: str, rules: HostRules) -> bool:
    return not rules.hosts or any(fnmatchcase(host, each.lower()) for each in rules.hosts)


def _split(url: str) -> SplitResult:
    """Split an address into its parts; raises InvalidRequest if it is not a valid address."""
    try:
        if not url.isascii() or re.search(r"[\x00-\x20\x7f\\]", url):
            raise ValueError("it has blanks or characters that are not ASCII")
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises ValueError
    except ValueError as error:
        raise InvalidRequest(f"url: {ascii(url)[:100]} is no address: {error}") from None
    return parts
