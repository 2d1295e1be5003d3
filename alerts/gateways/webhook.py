"""The generic signed webhook: what any gateway, or the receiver in front of an app, understands."""

from __future__ import annotations

from alerts.delivery.egress import Rules, check_url
from alerts.delivery.endpoint import Endpoint
from alerts.delivery.signing import secret

ENFORCES = {"tier": True, "target": True, "ratio": True, "retry_after": True, "lease": True}


def endpoint(  # noqa: PLR0913  # one keyword for each key of the configuration
    name: str,
    url: str,
    *,
    secret_text: str,
    previous_text: str = "",
    tiers: tuple[str, ...] = (),
    rules: Rules | None = None,
    timeout_seconds: float = 5.0,
) -> Endpoint:
    """Return the endpoint that a configuration describes.

    Raises:
        EgressError: If the URL's form is not allowed.
        SecretError: If a secret cannot be used.
        ValueError: If an allowed network is not in CIDR form.
    """
    where = f"webhook {name!r}"
    rules = rules or Rules()
    check_url(url, rules, where=where)
    rules.networks()
    secrets = [secret(secret_text, where=where)]
    if previous_text:
        secrets.append(secret(previous_text, where=f"{where}: previous secret"))
    return Endpoint(name, url, tuple(secrets), tiers, rules, timeout_seconds)
