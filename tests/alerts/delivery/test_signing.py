"""Standard Webhooks: the published example, rotation, and what does not verify."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.delivery.signing import SecretError, Signed, headers, secret, sign, verified

KEY = secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", where="test")
OLD = secret("whsec_" + "QUJD" * 8, where="test")
AT = datetime.fromtimestamp(1614265330, UTC)
MESSAGE, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}'


def signed_with(*keys: object, at: datetime = AT) -> Signed:
    made = headers(keys, MESSAGE, at, BODY)  # type: ignore[arg-type]  # the secrets above
    return Signed(made["webhook-id"], made["webhook-timestamp"], made["webhook-signature"])


def test_the_published_example_is_signed_as_published() -> None:
    assert sign([KEY], MESSAGE, AT, BODY) == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_while_a_secret_is_rotated_either_verifies() -> None:
    both = signed_with(KEY, OLD)

    assert verified([OLD], both, BODY, now=AT)
    assert verified([KEY], both, BODY, now=AT)
    assert not verified([OLD], signed_with(KEY), BODY, now=AT)


def test_a_changed_body_or_id_or_an_old_message_does_not_verify() -> None:
    signed = signed_with(KEY)

    assert not verified([KEY], signed, BODY + b" ", now=AT)
    assert not verified([KEY], Signed("msg_2", signed.timestamp, signed.signature), BODY, now=AT)
    assert not verified([KEY], signed, BODY, now=AT + timedelta(minutes=6))
    assert not verified([KEY], signed, BODY, now=AT - timedelta(minutes=6))
    assert not verified([], signed, BODY, now=AT)


@settings(deadline=None)  # the machine may be busy
@given(st.text(), st.text(), st.text())
def test_no_header_makes_verification_raise_or_pass(one: str, two: str, three: str) -> None:
    assert not verified([KEY], Signed(one, two, three), BODY, now=AT)
    assert not verified([KEY], Signed(one, str(int(AT.timestamp())), three), BODY, now=AT)


@pytest.mark.parametrize("text", ["whsec_not base64", "whsec_QUJD", "", "whsec_" + "QUJD" * 30])
def test_a_secret_that_cannot_be_used_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(SecretError, match=r"webhook 'gw'.*openssl rand") as caught:
        secret(text, where="webhook 'gw'")

    assert "QUJD" not in str(caught.value)


def test_a_secret_is_not_in_its_repr() -> None:
    assert "MfKQ" not in repr(KEY)
    assert repr(KEY.key) not in repr(KEY)
