"""Where in a command the vLLM server starts: behind ``sudo``, ``docker run``, ``sh -c``, ``python -m`` and the like."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from simulator.errors import ConfigError
from simulator.shell_words import assignment, expand, split_commands

_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
_MAIN_MODULES = ("vllm.entrypoints.cli.main", "vllm.scripts", "vllm")
_NOT_SERVERS = ("bench", "chat", "complete", "run-batch", "collect-env", "launch")
_SHELLS = ("sh", "bash", "zsh", "dash", "ash")
_DEEPEST = 4

#: Options of ``docker run`` that stand alone; all others take a value.
_DOCKER_SWITCHES = (
    "--detach", "--disable-content-trust", "--init", "--interactive", "--no-healthcheck", "--oom-kill-disable",
    "--privileged", "--publish-all", "--quiet", "--read-only", "--rm", "--sig-proxy", "--tty", "--replace", "-q",
)  # fmt: skip


@dataclass
class Launch:
    """The server's arguments and what surrounds them."""

    words: list[str]
    image: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    is_vllm_serve: bool = True

    @property
    def vllm_version(self) -> str | None:
        """The version in the image's tag, if it names one."""
        return image_version(self.image)


def image_version(image: str | None) -> str | None:
    """Return the vLLM version of a tag such as ``vllm/vllm-openai:v0.8.5`` or ``rocm/vllm:..._vllm_0.8.5_...``."""
    if image is None or "vllm" not in image.lower():
        return None
    tag = image.split("@")[0].rpartition("/")[2].partition(":")[2]
    found = re.match(r"v?(\d+\.\d+(?:\.\d+)?(?:\.?(?:post|rc)\d+)?)(?![\d.])", tag)
    found = found or re.search(r"vllm[_-]?v?(\d+\.\d+\.\d+)", tag)
    return found[1] if found else None


def find_launch(text: str, variables: dict[str, str] | None = None, depth: int = 0) -> Launch | None:
    """Return the first server started in *text* (a shell text); None if there is none."""
    env = dict(variables or {})
    for words in split_commands(text):
        words = [expand(word, env) for word in words]
        at = 0
        while at < len(words) and (words[at] in ("export", "env", "set", "ENV", "sudo") or assignment(words[at])):
            pair = assignment(words[at])
            if pair is not None:
                env[pair[0]] = pair[1]
            at += 1
        found = find_in_words(words[at:], env, depth)
        if found is not None:
            found.env = {**env, **found.env}
            return found
    return None


def find_in_words(words: Sequence[str], env: dict[str, str], depth: int = 0) -> Launch | None:
    """Return the server that one command starts, or None."""
    for at, word in enumerate(words):
        name = word.rsplit("/", 1)[-1].removesuffix(".exe")
        if name in ("docker", "podman", "nerdctl") and "run" in words[at + 1 : at + 4]:
            return _docker(list(words[words.index("run", at) + 1 :]), env, depth)
        if name in _SHELLS and depth < _DEEPEST:
            script = _script(words[at + 1 : at + 10])
            if script is not None:
                return find_launch(script, env, depth + 1)
        pair = assignment(word)
        if pair is not None and not word.startswith("-"):
            env[pair[0]] = pair[1]
        found = _server(words, at, name)
        if found is not None:
            return found
    for word in words if depth < _DEEPEST else ():
        if " " in word and ("vllm serve" in word or _MODULES[0] in word):  # a whole line as one word, as with ssh
            return find_launch(word, env, depth + 1)
    return None


def _server(words: Sequence[str], at: int, name: str) -> Launch | None:
    """Return the server that starts at word *at* (called *name* without its folder), if one does."""
    module = words[at].removeprefix("-m")
    if module in _MODULES or name == "api_server.py":
        return Launch(list(words[at + 1 :]), is_vllm_serve=False)
    if name == "vllm" or module in _MAIN_MODULES:
        following = words[at + 1] if at + 1 < len(words) else ""
        if following == "serve":
            return Launch(list(words[at + 2 :]))
        if following in _NOT_SERVERS:
            raise ConfigError(f"`vllm {following}` starts no server; give the `vllm serve MODEL ...` line")
    return None


def _script(rest: Sequence[str]) -> str | None:
    """Return the text after ``-c`` (or ``-lc``, ``-ec``...)."""
    for at, word in enumerate(rest):
        if re.fullmatch(r"-[a-z]*c", word):
            return " ".join(rest[at + 1 : at + 2])
        if not word.startswith("-"):
            return None
    return None


def _docker(words: list[str], env: dict[str, str], depth: int) -> Launch | None:
    """Return the server of a ``docker run`` line: the image's own entrypoint is the server."""
    at, entrypoint, given = 0, "", dict(env)
    while at < len(words) and words[at].startswith("-"):
        option, equals, value = words[at].partition("=")
        at += 1
        if option in _DOCKER_SWITCHES or re.fullmatch(r"-[ditP]+", option):
            continue
        if not equals:
            value = words[at] if at < len(words) else ""
            at += 1
        pair = assignment(value)
        if option in ("-e", "--env") and pair is not None:
            given[pair[0]] = pair[1]
        if option == "--entrypoint":
            entrypoint = value
    if at >= len(words):
        raise ConfigError("the `docker run` line names no image; copy it to its end")
    image, rest = words[at], words[at + 1 :]
    found = container_launch([*entrypoint.split(), *rest], image, given, depth)
    if found is not None:
        found.env = {**given, **found.env}
    return found


def container_launch(words: list[str], image: str | None, env: dict[str, str], depth: int = 0) -> Launch | None:
    """Return what a container with these words runs: a server among them, or the image's with them as arguments."""
    found = find_in_words(words, env, depth)
    if found is None and words[:1] == ["serve"]:
        found = Launch(words[1:])
    if found is None and words and words[0].rsplit("/", 1)[-1] not in (*_SHELLS, "python", "python3", "vllm"):
        found = Launch(words)
    if found is not None:
        found.image = found.image or image
    return found
