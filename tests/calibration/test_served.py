"""A server is asked what it serves, with its key."""

import re

import pytest

from calibration.client import Target, replay
from calibration.served import Served, api_key, served
from calibration.server import Attached, ServerError, free_port
from simulator.errors import InputError
from tests.calibration.fake_server import FakeServer
from tests.calibration.test_client import table


def test_a_server_names_its_model_and_its_longest_request():
    with FakeServer() as server:
        assert served(server.url, None) == Served("tiny", 2048)


def test_a_server_with_a_key_is_asked_with_it():
    with FakeServer(api_key="secret") as server:
        assert served(server.url, "secret").name == "tiny"
        run = replay(Target(server.url, "tiny", 2048, "secret"), table(2))
        refused = replay(Target(server.url, "tiny", 2048), table(2))
    assert not run.failures
    assert "HTTP 401" in refused.first_error()


@pytest.mark.parametrize(
    ("key", "words"), [(None, "wants an API key; set VLLM_API_KEY"), ("x", "wants another API key")]
)
def test_a_server_that_wants_another_key_says_so(key, words):
    with FakeServer(api_key="secret") as server, pytest.raises(ServerError, match=words):
        served(server.url, key)


def test_what_is_no_vllm_is_told_in_one_line():
    with pytest.raises(ServerError, match="does not answer as vLLM does") as caught:
        served(f"http://127.0.0.1:{free_port()}", None)
    assert "\n" not in str(caught.value)


def test_the_key_is_the_servers_own_else_the_environments(monkeypatch):
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    assert api_key([]) is None
    monkeypatch.setenv("VLLM_API_KEY", "e")
    assert [api_key(words.split()) for words in ("", "--api-key a", "--port 1 --api_key=b")] == ["e", "a", "b"]


def test_an_address_the_client_does_not_speak_is_refused_at_once():
    for url in ("localhost:8000", "https://localhost:8000"):
        with pytest.raises(InputError, match=re.escape(f"--url {url}: must start with http://")):
            Attached(url)
