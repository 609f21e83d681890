"""The words of a command line that lead to someone else's cluster; nothing secret is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.cluster.backends.attach.options import attachment
from ackproof.cluster.backends.attach.secure import opener_of

SECRET = "h4nn1bal"
PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": SECRET,
}
WORDS = tuple(f"{name}={value}" for name, value in PLAIN.items())


def test_no_word_of_it_means_a_cluster_of_our_own() -> None:
    assert attachment(None, None, ()) is None


def test_words_count_more_than_the_file_and_nothing_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# how we get in\n\nsasl.username=you\nsasl.password = {SECRET}=x \n", encoding="utf-8")
    made = attachment("a:1,[::1]:2", file, [word for word in WORDS if "password" not in word])
    assert made is not None
    assert made.settings == {**PLAIN, "sasl.password": f"{SECRET}=x"}
    assert [tuple(address) for address in made.addresses()] == [("a", 1), ("::1", 2)]
    assert SECRET not in repr(made)


@pytest.mark.parametrize(
    ("bootstrap", "words", "said"),
    [
        (None, WORDS, "for --bootstrap"),
        ("kafka", (), "expected host:port"),
        ("kafka:99999", (), "expected host:port"),
        ("a:1", ("sasl.password",), "the 1. of them has no '='"),
        ("a:1", (f"linger.ms={SECRET}",), "linger.ms: only settings of connections"),
        ("a:1", (f"ssl.keystore.location={SECRET}",), "ssl.keystore.location: librdkafka may know it"),
        ("a:1", (*WORDS, "sasl.mechanism=OAUTHBEARER"), "OAUTHBEARER"),
        ("a:1", (*WORDS, "security.protocol=tls"), "one of plaintext, ssl"),
        ("a:1", WORDS[:3], "sasl.password is missing"),
        ("a:1", ("security.protocol=ssl", "ssl.ca.location=/nowhere.pem"), "/nowhere.pem"),
    ],
)
def test_what_cannot_be_is_said_without_a_value(
    bootstrap: str | None, words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(BadInput, match=said.replace("(", r"\(").replace(".", r"\.")) as caught:
        attachment(bootstrap, None, words)
    assert SECRET not in str(caught.value)


def test_a_backend_that_contradicts_is_refused() -> None:
    with pytest.raises(BadInput, match="leave --backend process out"):
        attachment("a:1", None, (), "process")
    with pytest.raises(BadInput, match="--bootstrap host:port"):
        attachment(None, None, (), "attach")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.properties: cannot be read"):
        attachment("a:1", tmp_path / "none.properties", ())
    (tmp_path / "odd").write_text("sasl.username\n", encoding="utf-8")
    with pytest.raises(BadInput, match="odd:1: expected key=value"):
        attachment("a:1", tmp_path / "odd", ())


def test_without_security_a_line_is_plain() -> None:
    assert opener_of({}).__name__ == "plain"
    assert opener_of(PLAIN).__name__ == "opened"
