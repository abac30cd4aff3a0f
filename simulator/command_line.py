"""How people start vLLM, read into one value: command lines, container arguments, log lines, Python calls.

    vllm serve MODEL ...            python -m vllm.entrypoints.openai.api_server --model MODEL ...
    docker run ... IMAGE ...        Kubernetes or compose YAML, JSON lists, bare flags
    non-default args: {...}         LLM(model=..., ...)

Nothing is executed.  `ServeArgs.given` holds what the user set, by flag with underscores; `simulator.resolve` adds the
defaults.  Bad input raises `ConfigError` of one line; what is skipped is said in `ServeArgs.notes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from simulator.errors import ConfigError
from simulator.flag_answers import ANSWERS
from simulator.flag_table import ALIASES, FLAGS, NOT_MODELLED
from simulator.flag_values import convert
from simulator.flags import SKIPPED, Reading, answer, closest, is_flag, read_flags, unknown
from simulator.kubernetes import container
from simulator.launch import Launch, container_launch, find_launch
from simulator.python_text import PythonArguments, python_arguments
from simulator.shell_words import clean

_LONGEST = 1_000_000
#: Of a Kubernetes manifest, or of the deploy section of docker-compose: more servers than one.
_REPLICAS = re.compile(r"^[ \t]*replicas:[ \t]*([2-9]|[1-9][0-9]+)[ \t]*$", re.MULTILINE)
UsageContext = Literal["serve", "llm"]


class ServeArgs(BaseModel):
    """What the user set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = None
    given: dict[str, Any] = Field(default_factory=dict)
    usage_context: UsageContext = "serve"
    notes: tuple[str, ...] = ()
    vllm_version: str | None = None
    hf_config_path: str | None = None
    env: dict[str, str] = Field(default_factory=dict)  # VLLM_... variables

    @classmethod
    def from_kwargs(
        cls,
        model: str | None = None,
        *,
        usage_context: UsageContext = "serve",
        vllm_version: str | None = None,
        env: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> ServeArgs:
        """Return the same from keyword arguments; an unknown one raises `ConfigError` with a suggestion."""
        for name in settings:
            if name in ANSWERS:
                raise ConfigError(answer(name))
            if name not in FLAGS and name not in SKIPPED and name not in ALIASES:
                near = closest(name)
                fix = f"did you mean {near}?" if near else "settings are spelled as vLLM's flags, with underscores"
                raise ConfigError(f"unknown setting {name[:60]!r}; {fix}")
        reading = Reading()
        _read_values(reading, settings)
        return _finished(reading, model, usage_context, vllm_version, env or {})

    def with_settings(self, settings: Mapping[str, Any]) -> ServeArgs:
        """Return the same with *settings* (as for `from_kwargs`) in place of what was set; None: vLLM's default."""
        changed = ServeArgs.from_kwargs(**settings)
        replaced = {ALIASES.get(name, name) for name in settings}
        given = {name: value for name, value in self.given.items() if name not in replaced} | changed.given
        model, path = changed.model or self.model, changed.hf_config_path or self.hf_config_path
        notes = tuple(_unique([*self.notes, *changed.notes]))
        return self.model_copy(update={"model": model, "hf_config_path": path, "given": given, "notes": notes})


def parse(text: str) -> ServeArgs:
    """Return what *text* says, in any of the forms above.  Raises `ConfigError`, one line."""
    if len(text) > _LONGEST:
        raise ConfigError(f"the text has {len(text)} characters; paste only the line that starts the server")
    text = clean(text)
    if not text.strip():
        raise ConfigError("no command given; paste the line that starts the server, e.g. `vllm serve MODEL`")
    written = python_arguments(text)
    if written is not None:
        return _from_python(written, text)
    launch = _launch(text)
    if launch is None:
        raise ConfigError(_no_server(text))
    reading = read_flags(launch.words)
    if launch.image and launch.vllm_version is None:
        reading.note(f"image {launch.image[:60]} names no vLLM version; --vllm-version says which")
    if (replicas := _REPLICAS.search(text)) is not None:
        reading.note(
            f"the manifest starts {replicas[1]} servers; this is one of them (simulate --replicas {replicas[1]})"
        )
    return _finished(reading, _model(reading, launch), "serve", launch.vllm_version, launch.env)


def _launch(text: str) -> Launch | None:
    found = container(text)
    if found is not None:
        launch = container_launch(found.words, found.image, found.env)
        if launch is not None:
            launch.env = {**found.env, **launch.env}
        return launch
    env: dict[str, str] = {}
    launch = find_launch(text, env)
    if launch is None and is_flag(text.split()[0]):
        launch = find_launch("vllm serve " + text.lstrip(), env)
    return launch


def _no_server(text: str) -> str:
    if "EngineStats" in text:
        return "vLLM never had an EngineStats to import; use the /metrics endpoint"
    shown = " ".join(text.split())
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return f"no vLLM server is started in {shown!r}; paste a `vllm serve MODEL ...`, `docker run`, args or log line"


def _model(reading: Reading, launch: Launch) -> str | None:
    """Return the positional model; what else is positional is said in a note."""
    words = reading.positional
    if not words and "model" not in reading.given:
        words = [word for word in reading.unknown_values if "/" in word][-1:]
    for word in words[1:]:
        reading.note(f"argument {word[:40]!r} is ignored: it follows no flag")
    if not words or (not launch.is_vllm_serve and "model" in reading.given):
        return None
    if reading.given.get("model", words[0]) != words[0]:
        reading.note(f"--model {reading.given['model']} is ignored: `vllm serve` takes the model {words[0]}")
    return words[0]


def _from_python(written: PythonArguments, text: str) -> ServeArgs:
    reading = Reading()
    for note in written.notes:
        reading.note(note)
    tag = written.values.pop("model_tag", None)
    model = tag if isinstance(tag, str) else None
    context: UsageContext = "llm" if written.context in ("LLM", "EngineArgs") else "serve"
    values = written.values
    if tag is None and "APIServer" not in text and _is_log_of_llm(written):
        reading.note("read as the log line of LLM(...): it has disable_log_stats and no model_tag")
        context = "llm"
    _read_values(reading, values)
    return _finished(reading, model, context, None, {})


def _is_log_of_llm(written: PythonArguments) -> bool:
    """``LLM`` sets disable_log_stats itself, and knows nothing of a server's flags."""
    values = written.values
    server = {"host", "port", "api_key", "served_model_name"} & values.keys()
    return written.context == "log" and values.get("disable_log_stats") is True and not server


def _read_values(reading: Reading, values: Mapping[str, Any]) -> None:
    """Put Python values into *reading*, as `read_flags` does with words."""
    for spelled, value in values.items():
        name = ALIASES.get(spelled, spelled)
        if name in FLAGS:
            converted = convert(FLAGS[name], value)
            if name == "optimization_level" and isinstance(converted, dict):
                name = "compilation_config"
            if converted is not None:
                reading.given[name] = converted
        elif name in ANSWERS:
            reading.note(answer(name))
        elif name in NOT_MODELLED and (value is True or value not in (None, False, 0, 1)):
            reading.note(f"{name} is not modelled (ignored)")
        elif name not in SKIPPED:
            reading.note(unknown(name))


def _finished(
    reading: Reading, model: str | None, context: UsageContext, version: str | None, env: Mapping[str, str]
) -> ServeArgs:
    given = dict(reading.given)
    named = given.pop("model", None)
    path = given.pop("hf_config_path", None)
    return ServeArgs(
        model=_checked_model(model if model is not None else named),
        given=given,
        usage_context=context,
        notes=tuple(_unique(reading.notes)),
        vllm_version=version,
        hf_config_path=path,
        env={name: value for name, value in env.items() if name.startswith("VLLM_")},
    )


def _checked_model(model: Any) -> str | None:
    if model is None or (isinstance(model, str) and model.strip()):
        return model
    if not isinstance(model, str):
        raise ConfigError(f"model must be a name or a path, got {str(model)[:40]}; write it in quotes")
    raise ConfigError("the model's name is empty; write it after `vllm serve`")


def _unique(notes: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(notes))
