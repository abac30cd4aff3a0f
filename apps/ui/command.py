"""The ``servecast simulate`` line that asks what a page asks."""

from __future__ import annotations

import shlex

from apps.ui.question import Question


def command(question: Question) -> str:
    """Return the ``servecast simulate`` line that asks the same; files are to be downloaded beside it."""
    if question.scenario_json:
        return "servecast simulate --scenario scenario.json"
    words = ["servecast", "simulate", question.server.strip()]
    if question.config_json:
        words += ["--model-config", "config.json"]
    words += ["--profile", question.profile] if question.profile else []
    words += ["--gpu", question.gpu] if question.gpu else []
    words += ["--vllm-version", question.vllm_version] if question.vllm_version else []
    lengths = ["--prompt-tokens", question.prompt_tokens.strip(), "--output-tokens", question.output_tokens.strip()]
    if question.load == "rate":
        words += ["--rate", f"{question.rate!r}", *lengths]
        words += ["--burstiness", f"{question.burstiness!r}"] if question.burstiness != 1 else []
    elif question.load == "concurrency":
        words += ["--concurrency", str(question.concurrency), *lengths]
    elif question.load == "trace":
        words += ["--trace", question.trace]
        words += ["--rate-scale", f"{question.rate_scale!r}"] if question.rate_scale != 1 else []
    else:
        words += ["--requests", "requests.csv"]
    words += ["--num-prompts", str(question.num_prompts)]
    words += ["--over-length", question.over_length] if question.over_length != "fail" else []
    words += ["--seed", str(question.seed)] if question.seed else []
    return shlex.join(words)
