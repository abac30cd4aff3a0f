import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.command_line import ServeArgs, parse
from simulator.errors import ConfigError, ServecastError

SERVE = "vllm serve org/m "


def given_by(flags):
    return parse(SERVE + flags).given


def notes_of(flags):
    return " | ".join(parse(SERVE + flags).notes)


# ---------------------------------------------------------------- forms

FORMS = {
    "serve": "vllm serve org/m --max-num-seqs 5",
    "serve with --model": "vllm serve --model org/m --max-num-seqs 5",
    "flags before the model": "vllm serve --max-num-seqs 5 org/m",
    "a path to vllm": "/opt/venv/bin/vllm serve org/m --max-num-seqs 5",
    "openai module": "python -m vllm.entrypoints.openai.api_server --model org/m --max-num-seqs 5",
    "plain module": "python3 -m vllm.entrypoints.api_server --model org/m --max-num-seqs 5",
    "main module": "python -m vllm.entrypoints.cli.main serve org/m --max-num-seqs 5",
    "script": "python /app/vllm/entrypoints/openai/api_server.py --model org/m --max-num-seqs 5",
    "environment": "CUDA_VISIBLE_DEVICES=0 HF_TOKEN=x vllm serve org/m --max-num-seqs 5",
    "sudo": "sudo -E vllm serve org/m --max-num-seqs 5",
    "env": "env A=b vllm serve org/m --max-num-seqs 5",
    "uv, nohup, redirections": "nohup uv run vllm serve org/m --max-num-seqs 5 > server.log 2>&1 &",
    "pipe": "vllm serve org/m --max-num-seqs 5 2>&1 | tee log.txt",
    "after other commands": "cd /srv && export A=1; pip install x && vllm serve org/m --max-num-seqs 5",
    "prompt": "$ vllm serve org/m --max-num-seqs 5",
    "prompt of a host": "(venv) me@host:~/x$ vllm serve org/m --max-num-seqs 5",
    "prompt of root": "# vllm serve org/m --max-num-seqs 5",
    "backslashes": "vllm serve org/m \\\n    --max-num-seqs 5",
    "backslashes with blanks behind": "vllm serve org/m \\  \n    --max-num-seqs 5",
    "backslashes of Windows": "vllm serve org/m \\\r\n    --max-num-seqs 5\r\n",
    "backslash at the end": "vllm serve org/m --max-num-seqs 5 \\",
    "carets": "vllm serve org/m ^\r\n --max-num-seqs 5",
    "backticks": "vllm serve org/m `\n --max-num-seqs 5",
    "line ends without backslash": "vllm serve org/m\n  --max-num-seqs 5\n",
    "a comment between": "vllm serve org/m \\\n  # --max-num-seqs 7 \\\n  --max-num-seqs 5",
    "typographic quotes and dashes": "vllm serve “org/m” —max-num-seqs 5",
    "variables": "MODEL=org/m\nN=5\nvllm serve $MODEL --max-num-seqs ${N}",
    "default of a variable": "vllm serve org/m --max-num-seqs ${N:-5}",
    "sh -c": "sh -c 'vllm serve org/m --max-num-seqs 5'",
    "bash -lc": 'bash -lc "source x && exec vllm serve org/m --max-num-seqs 5"',
    "ssh": "ssh host 'cd x; vllm serve org/m --max-num-seqs 5'",
    "bare flags": "--model org/m --max-num-seqs 5",
    "bare flags over lines": "--model org/m \\\n  --max-num-seqs 5",
    "docker": "docker run --gpus all -v ~/.cache:/root/.cache -e HF_TOKEN=x -p 8000:8000 --ipc=host -it --rm "
    "vllm/vllm-openai:latest --model org/m --max-num-seqs 5",
    "docker, positional": "docker run --runtime nvidia --name vllm vllm/vllm-openai org/m --max-num-seqs 5",
    "podman": "sudo podman run --rm --device nvidia.com/gpu=all docker.io/vllm/vllm-openai --model org/m "
    "--max-num-seqs 5",
    "docker with an entrypoint": "docker run --entrypoint vllm vllm/vllm-openai serve org/m --max-num-seqs 5",
    "docker with a shell": "docker run --entrypoint /bin/bash vllm/vllm-openai -c 'vllm serve org/m --max-num-seqs 5'",
    "docker with a module": "docker run --entrypoint=python3 x/vllm -m vllm.entrypoints.openai.api_server "
    "--model org/m --max-num-seqs 5",
    "another image": "docker run nvcr.io/nvidia/x:1 vllm serve org/m --max-num-seqs 5",
    "args in one line": 'args: ["--model", "org/m", "--max-num-seqs", "5"]',
    "args without quotes": "args: [--model, org/m, --max-num-seqs=5]",
    "args over lines": 'args: [\n  "--model=org/m",  # the model\n  "--max-num-seqs=5",\n]',
    "args as dashes": "args:\n- --model\n- org/m\n- '--max-num-seqs=5'",
    "dashes with a comment": "        args:\n          - --model=org/m\n          # why\n"
    "          - --max-num-seqs=5 # few\n        ports:\n          - containerPort: 8000",
    "dashes alone": '- "--model"\n- "org/m"\n- --max-num-seqs 5',
    "json list": '["--model", "org/m", "--max-num-seqs", "5"]',
    "json container": '{"containers": [{"name": "x", "image": "vllm/vllm-openai", "args": ["--model", "org/m", '
    '"--max-num-seqs", "5"]}]}',
    "command and args": 'command: ["vllm", "serve"]\nargs: ["org/m", "--max-num-seqs", "5"]',
    "shell in command": 'command: ["/bin/sh", "-c"]\nargs: ["vllm serve org/m --max-num-seqs 5"]',
    "module in command": "command:\n  - python3\n  - -m\n  - vllm.entrypoints.openai.api_server\nargs:\n"
    "  - --model=org/m\n  - --max-num-seqs=5",
    "block in args": "command: [bash, -c]\nargs:\n- |\n  echo hi\n  vllm serve org/m \\\n    --max-num-seqs 5\n",
    "block of a key": "args: |\n  vllm serve org/m\n    --max-num-seqs 5\n",
    "compose": "services:\n  vllm:\n    image: vllm/vllm-openai:latest\n    command: --model org/m --max-num-seqs 5\n",
    "compose, folded": "    image: vllm/vllm-openai\n    command: >\n      --model org/m\n      --max-num-seqs 5\n",
    "another container first": "- name: side\n  image: nginx\n  args: [-g, x]\n- name: v\n  image: vllm/vllm-openai\n"
    "  args: [--model, org/m, --max-num-seqs, '5']",
    "log": "INFO 11-01 10:00:00 [utils.py:233] non-default args: {'model_tag': 'org/m', 'max_num_seqs': 5, 'port': 80}",
    "log with colours": "\x1b[1;36m(APIServer pid=1)\x1b[0;0m INFO 11-01 [utils.py:1] non-default args: "
    "{'model': 'org/m', 'max_num_seqs': 5}",
    "namespace": "INFO api_server.py] args: Namespace(host=None, model='org/m', max_num_seqs=5, lora_modules=None)",
}  # fmt: skip


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS.keys())
def test_every_form_says_the_same(text):
    args = parse(text)
    assert (args.model, args.given, args.usage_context) == ("org/m", {"max_num_seqs": 5}, "serve")


@pytest.mark.parametrize(
    "text",
    [
        "llm = LLM(model='org/m', max_num_seqs=5)",
        "from vllm import LLM\nllm = LLM(\n    'org/m',\n    max_num_seqs=5,  # few\n    seed=1,\n)\nllm.generate(x)",
        "EngineArgs(model='org/m', max_num_seqs=5)",
        "INFO non-default args: {'model': 'org/m', 'max_num_seqs': 5, 'disable_log_stats': True}",
    ],
)
def test_the_python_class_has_other_defaults(text):
    args = parse(text)
    assert (args.model, args.given, args.usage_context) == ("org/m", {"max_num_seqs": 5}, "llm")


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.8.5", "0.8.5"),
        ("vllm/vllm-openai:v0.8.5.post1", "0.8.5.post1"),
        ("vllm/vllm-openai:v0.11.0-cu129", "0.11.0"),
        ("registry:5000/vllm/vllm-openai:0.10.2", "0.10.2"),
        ("rocm/vllm:rocm6.3.1_instinct_vllm0.8.3_20250410", "0.8.3"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai", None),
        ("other/server:1.2.3", None),
    ],
)
def test_the_version_is_the_image_tag(image, version):
    assert parse(f"docker run {image} --model org/m").vllm_version == version
    assert parse(f"image: {image}\nargs: [--model, org/m]").vllm_version == version


def test_vllm_variables_are_kept_wherever_they_are_set():
    assert parse("HF_HOME=/x VLLM_USE_V1=0 vllm serve m").env == {"VLLM_USE_V1": "0"}
    assert parse("export VLLM_USE_V1=0\nvllm serve m").env == {"VLLM_USE_V1": "0"}
    assert parse("docker run -e VLLM_USE_V1=0 vllm/vllm-openai --model m").env == {"VLLM_USE_V1": "0"}
    assert parse('args: [--model, m]\nenv:\n- name: VLLM_USE_V1\n  value: "0"').env == {"VLLM_USE_V1": "0"}


def test_nothing_is_executed(tmp_path):
    target = tmp_path / "made"
    for text in (
        f"vllm serve $(touch {target}) --max-num-seqs 5",
        f"LLM(model=open({str(target)!r}, 'w'))",
        f"non-default args: {{'model': __import__('os').system('touch {target}')}}",
    ):
        parse(text)
    assert not target.exists()


# ---------------------------------------------------------------- flags


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        ("--max-model-len 4096", 4096),
        ("--max_model_len 4096", 4096),
        ("--max-model-len=4096", 4096),
        ("--max_model-len='4096'", 4096),
        ("--max-model-len 16k", 16000),
        ("--max-model-len 16K", 16384),
        ("--max-model-len 25.6k", 25600),
        ("--max-model-len 1M", 1 << 20),
        ("--max-model-len 1m", 1_000_000),
        ("--max-model-len -1", -1),
        ("--max-model-len=-1", -1),
        ("--max-model-len auto", -1),
        ("--max-model-len 1 --max-model-len 2", 2),
    ],
)
def test_spellings_of_a_number(flags, value):
    assert given_by(flags) == {"max_model_len": value}


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        ("--enable-prefix-caching", True),
        ("--no-enable-prefix-caching", False),
        ("--no_enable_prefix_caching", False),
        ("--enable-prefix-caching=False", False),
        ("--enable-prefix-caching=true", True),
        ("--enable-prefix-caching False", False),
        ("--enable-prefix-caching --no-enable-prefix-caching", False),
    ],
)
def test_spellings_of_a_switch(flags, value):
    assert given_by(flags) == {"enable_prefix_caching": value}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("-tp 4 -pp 2 -dp=3", {"tensor_parallel_size": 4, "pipeline_parallel_size": 2, "data_parallel_size": 3}),
        ("-q awq", {"quantization": "awq"}),
        ("-ep", {"enable_expert_parallel": True}),
        ("-O3", {"optimization_level": 3}),
        ("-O 0", {"optimization_level": 0}),
        ("-O=1", {"optimization_level": 1}),
        ("-O.cudagraph_mode=NONE", {"compilation_config": {"cudagraph_mode": "NONE"}}),
        ("-O '{\"level\": 2}'", {"compilation_config": {"level": 2}}),
        ("-cc.cudagraph_mode=FULL -cc.level 3", {"compilation_config": {"cudagraph_mode": "FULL", "level": 3}}),
        ("--compilation-config 3", {"compilation_config": {"level": 3}}),
        ('--compilation-config \'{"cudagraph_mode": "NONE"}\'', {"compilation_config": {"cudagraph_mode": "NONE"}}),
        ("--compilation-config.cudagraph_mode=NONE", {"compilation_config": {"cudagraph_mode": "NONE"}}),
        ("--cudagraph-capture-sizes 1 2 4", {"cudagraph_capture_sizes": [1, 2, 4]}),
        ("--cudagraph-capture-sizes 1,2,4", {"cudagraph_capture_sizes": [1, 2, 4]}),
        ("--cudagraph-capture-sizes=[1,2,4]", {"cudagraph_capture_sizes": [1, 2, 4]}),
        ("--swap-space 4 --cpu-offload-gb 0.5", {"swap_space": 4.0, "cpu_offload_gb": 0.5}),
        ("--kv-cache-memory-bytes 25G", {"kv_cache_memory_bytes": 25 << 30}),
        ("--gpu-memory-util 0.5", {"gpu_memory_utilization": 0.5}),  # argparse takes unique beginnings
    ],
)
def test_flags_that_are_read(flags, expected):
    assert given_by(flags) == expected


SILENT = [
    "--host 0.0.0.0 --port 8000 --api-key secret",
    "--served-model-name a b c",
    "--trust-remote-code --download-dir /x --seed 0 --disable-log-requests --enable-log-requests",
    "--chat-template ./t.jinja --enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3",
    "--uvicorn-log-level warning --disable-uvicorn-access-log --root-path /v --ssl-keyfile k",
    "--tokenizer org/t --tokenizer-mode auto --revision main --load-format dummy --config-format hf",
    "--no-enable-log-requests --disable-log-stats --no-disable-log-stats",
    "--generation-config vllm --override-generation-config '{\"temperature\": 0}'",
    "--default-chat-template-kwargs '{\"enable_thinking\": false}' --limit-mm-per-prompt.image=0",
    "--allowed-origins '[\"*\"]' --middleware a --middleware b --max-logprobs 5 --uds /tmp/s",
]


@pytest.mark.parametrize("flags", SILENT)
def test_flags_that_do_not_touch_performance_are_accepted_in_silence(flags):
    args = parse(f"vllm serve {flags} --max-num-seqs 5 --model org/m".replace("--limit-mm-per-prompt.image=0", ""))
    assert (args.model, args.given, args.notes) == ("org/m", {"max_num_seqs": 5}, ())


def test_unknown_flags_are_listed_with_the_closest_one_and_their_values_are_skipped():
    args = parse(SERVE + "--max-num-sequences 3 --brand-new 7 --max-num-seqs 5")
    assert args.given == {"max_num_seqs": 5}
    assert args.notes == (
        "unknown flag --max-num-sequences (ignored); did you mean --max-num-seqs?",
        "unknown flag --brand-new (ignored)",
    )


def test_a_switch_nobody_knows_does_not_swallow_the_model():
    assert parse("vllm serve --brand-new org/m").model == "org/m"
    assert parse("vllm serve --api-key secret org/m").model == "org/m"


def test_what_may_touch_performance_and_is_not_modelled_is_mentioned():
    assert notes_of("--enable-dbo --api-server-count 4") == (
        "--enable-dbo is not modelled (ignored) | --api-server-count is not modelled (ignored)"
    )


@pytest.mark.parametrize(
    ("flag", "answer"),
    [
        ("--max-paddings 256", "removed in 0.4.0 when batches stopped being padded"),
        ("--chunked-prefill-size 512", "did you mean --max-num-batched-tokens?"),
        ("--recompute-prefill", "did you mean --preemption-mode (V0 only)?"),
        ("--max-seqs-per-group 4", "did you mean --max-num-seqs?"),
        (
            "--scheduler-policy FAIR",
            "did you mean --scheduling-policy? Values: fcfs, priority. There is no fair policy",
        ),
        ("--quantization-param-group-size 128", "the group size is read from the checkpoint's quantization_config"),
        ("--use-v2-block-manager", "has no effect"),
        ("--kv-cache-free-gpu-memory-fraction 0.9", "TensorRT-LLM's; did you mean --gpu-memory-utilization?"),
        ("--mem-fraction-static 0.9", "SGLang's; did you mean --gpu-memory-utilization?"),
        ("--max-running-requests 8", "SGLang's; did you mean --max-num-seqs?"),
        ("--schedule-policy lpm", "SGLang's; did you mean --scheduling-policy?"),
    ],
)
def test_flags_that_guides_name_and_vllm_does_not_have_are_answered(flag, answer):
    args = parse(SERVE + flag + " --max-num-seqs 5")
    assert args.given == {"max_num_seqs": 5}
    assert len(args.notes) == 1
    assert answer in args.notes[0]


def test_engine_stats_never_existed():
    with pytest.raises(ConfigError, match="use the /metrics endpoint"):
        parse("from vllm import EngineStats")


def test_the_positional_model_wins_over_the_flag():
    args = parse("vllm serve org/a --model org/b extra")
    assert args.model == "org/a"
    assert "--model org/b is ignored" in args.notes[1]


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SERVE + "--max-num-seqs abc", "--max-num-seqs must be a whole number, got 'abc'"),
        (SERVE + "--max-num-seqs 1k", "no suffix here"),
        (SERVE + "--max-num-seqs 2.5", "must be a whole number"),
        (SERVE + "--max-num-seqs", "--max-num-seqs needs a value"),
        (SERVE + "--max-num-seqs --enforce-eager", "--max-num-seqs needs a value"),
        (SERVE + "--max-model-len 1.5K", "decimals are not allowed with binary suffixes like K; did you mean 1.5k?"),
        (SERVE + "--max-model-len lots", "write e.g. 16384, 16K or 16k"),
        (SERVE + "--gpu-memory-utilization nan", "must be a finite number"),
        (SERVE + "--gpu-memory-utilization inf", "must be a finite number"),
        (SERVE + "--gpu-memory-utilization high", "must be a finite number"),
        (SERVE + "--enforce-eager=maybe", "must be true or false"),
        (SERVE + "--no-enforce-eager=1", "takes no value"),
        (SERVE + "--hf-overrides nonsense", "must be a JSON object"),
        (SERVE + "-O9", "level from 0 to 3"),
        (SERVE + "--cudagraph-capture-sizes", "needs at least one value"),
        (SERVE + "--block-size.x 3", "has no keys"),
        ("vllm serve 'org/m --max-num-seqs 5", "never closed; add the missing '"),
        ('vllm serve "org/m', 'never closed; add the missing "'),
        ("vllm serve ''", "the model's name is empty"),
        ("", "no command given"),
        ("   \n ", "no command given"),
        ("\x1b[0m", "no command given"),
        ("hello world", "no vLLM server is started in 'hello world'"),
        ("vllm bench serve --model org/m", "`vllm bench` starts no server"),
        ("docker run --gpus all", "names no image"),
        ("non-default args: {'model': 'x'", "never closed"),
        ("non-default args: {'model' 'x' 3 4}", "not valid Python"),
        ("LLM(model=", "never closed"),
        ("[--model, x", "never closed"),
    ],
)
def test_bad_input_is_refused_in_one_line_that_names_it(text, message):
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


# ---------------------------------------------------------------- keyword arguments


def test_keyword_arguments_say_the_same_as_flags():
    by_flags = parse("vllm serve org/m --max-num-seqs 5 --max-model-len 16k --no-enable-prefix-caching")
    by_words = ServeArgs.from_kwargs(model="org/m", max_num_seqs=5, max_model_len="16k", enable_prefix_caching=False)
    assert by_words == by_flags


def test_keyword_arguments_of_the_front_end_are_accepted():
    assert ServeArgs.from_kwargs("org/m", port=8000, swap_space=None).given == {}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("max_num_seq", "did you mean max_num_seqs?"),
        ("zzz", "spelled as vLLM's flags"),
        ("chunked_prefill_size", "did you mean --max-num-batched-tokens?"),
    ],
)
def test_an_unknown_keyword_is_refused_with_a_suggestion(name, message):
    with pytest.raises(ConfigError, match=r"--chunked|unknown setting") as error:
        ServeArgs.from_kwargs(model="org/m", **{name: 1})
    assert message in str(error.value)


def test_settings_stand_in_for_those_of_the_command_and_none_is_the_default():
    args = parse("vllm serve facebook/opt-125m --max-num-seqs 64 --enforce-eager --dtype float16")
    changed = args.with_settings(
        {"max_num_seqs": "128", "enforce_eager": None, "tensor_parallel_size": 2, "block_size": 32}
    )
    assert changed.model == "facebook/opt-125m"
    assert changed.given == {"dtype": "float16", "max_num_seqs": 128, "tensor_parallel_size": 2, "block_size": 32}
    assert args.with_settings({"model": "gpt2"}).model == "gpt2"
    with pytest.raises(ConfigError, match="did you mean max_num_seqs"):
        args.with_settings({"max_nun_seqs": 1})


def test_values_that_are_no_literals_are_left_out_and_mentioned():
    args = parse("LLM(model='org/m', max_num_seqs=batch, dtype=torch.bfloat16, **more)")
    assert args.given == {"dtype": "bfloat16"}
    assert args.notes == (
        "max_num_seqs is not a plain value and was left out; write the value",
        "arguments given by ** are not read; write them out",
    )


def test_objects_in_a_log_line_are_read_as_far_as_they_can_be():
    args = parse(
        "non-default args: {'model_tag': 'org/m', 'compilation_config': {'cudagraph_mode': "
        "<CUDAGraphMode.FULL: 2>, 'pass_config': {}}, 'dtype': torch.float16, 'x': <object at 0x7f>}"
    )
    assert args.given["compilation_config"] == {"cudagraph_mode": "FULL", "pass_config": {}}
    assert args.given["dtype"] == "float16"


# ---------------------------------------------------------------- fuzz

_WORDS = (
    "vllm serve org/m --max-num-seqs 5 -tp -O3 -O.x=1 --model = ' \" \\ \n { } [ ] ( ) : , ; & | < > # $ ${A:-b} $( ` "
    "args: command: image: - -- --- --x --x.y=z --no- --no-x {'a':1} LLM( Namespace( non-default docker run sh -c "
    '--compilation-config {"a": --cudagraph-capture-sizes 1,2 nan -1 1e999 \x1b[0m \t true --enforce-eager python -m '
    "vllm.entrypoints.openai.api_server --entrypoint -e VLLM_USE_V1=1 ~ % é 中 \x00 \udcff"
)
_PIECES = st.sampled_from(_WORDS.split(" "))


@settings(max_examples=300, deadline=None)
@given(st.lists(_PIECES, max_size=25), st.sampled_from([" ", "", "\n"]))
def test_whatever_is_pasted_is_an_answer_or_one_line(pieces, between):
    with contextlib.suppress(ServecastError):
        parse(between.join(pieces))


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet=st.characters(max_codepoint=0x2FF), max_size=60), st.sampled_from(["", SERVE, "LLM(", "args: "])
)
def test_arbitrary_text_is_an_answer_or_one_line(text, start):
    try:
        parse(start + text)
    except ServecastError as error:
        message = str(error)
    else:
        message = ""
    assert len(message.splitlines()) <= 1


@pytest.mark.parametrize(
    ("image", "told"),
    [("vllm/vllm-openai:latest", True), ("vllm/vllm-openai", True), ("vllm/vllm-openai:v0.10.2", False)],
)
def test_an_image_without_a_version_is_told(image, told):
    notes = parse(f"docker run --gpus all {image} --model org/m").notes
    assert any("names no vLLM version; --vllm-version says which" in note for note in notes) == told


def test_the_replicas_of_a_manifest_are_told_not_simulated_silently():
    manifest = "spec:\n  replicas: {}\n  containers:\n  - image: vllm/vllm-openai:v0.10.2\n    args: [--model, org/m]\n"
    assert parse(manifest.format(3)).notes == (
        "the manifest starts 3 servers; this is one of them (simulate --replicas 3)",
    )
    assert parse(manifest.format(1)).notes == ()
