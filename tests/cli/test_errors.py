"""Bad input is one line that names file, line and field, and exit status 2."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.cli import main

HEADER = "arrival_s,input_tokens,output_tokens\n"

FILES = {
    "good.csv": HEADER + "0,100,10\n1,200,20\n",
    "empty.csv": "",
    "header-only.csv": HEADER,
    "bad-row.csv": HEADER + "0,100,10\n1,many,20\n",
    "bare-number.yaml": "topology: hgx-h200-8\ngoodput:\n  ttft: 2\n",
    "bad-unit.yaml": "topology: hgx-h200-8\ngoodput:\n  ttft: 2 GB\n",
    "unknown-key.yaml": "topology: hgx-h200-8\ndeployment:\n  max_num_seq: 2\n",
    "unknown-model.yaml": "topology: hgx-h200-8\nmodel: lama-3.1-70b\n",
    "negative-rate.yaml": "topology: hgx-h200-8\nworkload:\n  request_rate: -1\n",
    "tp-of-3.yaml": "topology: hgx-h200-8\ndeployment:\n  tensor_parallel_size: 3\n",
    "not-yaml.yaml": "topology: [hgx\nmodel: x\n",
    "no-table.yaml": "topology: hgx-h200-8\nworkload: azure-conv\n",
    "no-such-nic.yaml": "topology: hgx-h200-8\nevents:\n  - {at: 1 s, nic: nic9, state: down}\n",
    "early.yaml": "topology: hgx-h200-8\nevents:\n  - {at: -1 s, nic: 0, state: down}\n",
    "stopped.yaml": "topology: hgx-h200-8\nevents:\n  - {at: 1 s, gpu: 0, speed: 0}\n",
    "no-part.yaml": "topology: hgx-h200-8\nevents:\n  - {at: 1 s, state: down}\n",
    "several.yaml": "topology: [hgx-h200-8, gb300-nvl72]\n",
    "single.yaml": "topology: hgx-h200-8\n",
    "scaled.yaml": "topology: [hgx-h200-8, gb300-nvl72]\nscale_load: gpus\n",
    "pool-of-stages.yaml": (
        "topology: hgx-h200-8\ndeployment:\n  prefill: {}\n  decode:\n    pipeline_parallel_size: 16\n"
    ),
    "config.json": '{"model_type": "mixtral", "num_local_experts": 8}',
}

ON_H200 = "run --topology hgx-h200-8 --num-prompts 5"

FAULTS = {
    "nothing": ("", ["Missing command", "llmsim --help"]),
    "no command": ("rum", ["no command 'rum'", "did you mean run"]),
    "an unknown option": (f"{ON_H200} --max-num-seq 3", ["--max-num-seq"]),
    "no topology": ("run", ["topology: none is named", "hgx-h200-8"]),
    "a missing scenario": ("run singel.yaml", ["singel.yaml: no such file", "did you mean single.yaml"]),
    "a folder for a scenario": ("run .", ["directory"]),
    "no YAML": ("run not-yaml.yaml", ["not-yaml.yaml:2: is not YAML"]),
    "an unknown topology": ("run --topology hgx-h20-8", ["--topology: no topology", "hgx-h200-8"]),
    "an unknown model": (f"{ON_H200} --model lama-3.1-8b", ["--model: no model", "llama-3.1-8b"]),
    "an unknown model in a file": (
        "run unknown-model.yaml",
        ["unknown-model.yaml:2:model:", "llama-3.1-70b"],
    ),
    "an unknown preset": (f"{ON_H200} --workload azure-cov", ["--workload: no workload", "azure-conv"]),
    "an unknown engine": (f"{ON_H200} --engine vlm", ["--engine: no engine", "vllm"]),
    "an unknown router": (f"{ON_H200} --router least", ["--router: no router", "least-kv"]),
    "an unknown dtype": (f"{ON_H200} --weights bf15", ["--weights: 'bf15'", "did you mean bf16"]),
    "an unknown algorithm": (f"{ON_H200} --all-reduce rong", ["--all-reduce: 'rong'", "ring"]),
    "an unknown key": ("run unknown-key.yaml", ["unknown-key.yaml:3:deployment.max_num_seq", "max_num_seqs"]),
    "a name for a table": (
        "run no-table.yaml",
        ["no-table.yaml:2:workload: 'azure-conv' should be 'key: value'"],
    ),
    "a bare number": ("run bare-number.yaml", ["bare-number.yaml:3:goodput.ttft: 2 has no unit"]),
    "a bad unit": ("run bad-unit.yaml", ["bad-unit.yaml:3:goodput.ttft: unit 'GB'", "2 us"]),
    "a negative rate": (f"{ON_H200} --request-rate -1", ["--request-rate: '-1' should be greater than 0"]),
    "a negative rate in a file": ("run negative-rate.yaml", ["negative-rate.yaml:3:workload.request_rate"]),
    "an unknown metric": (f"{ON_H200} --goodput tftt:200", ["--goodput: no metric called 'tftt'", "ttft"]),
    "a limit without number": (f"{ON_H200} --goodput ttft:fast", ["--goodput: 'ttft:fast'", "ttft:2000"]),
    "a negative limit": (f"{ON_H200} --goodput ttft:-5", ["--goodput: a limit is above zero"]),
    "a TP that does not divide the heads": (
        f"{ON_H200} --tensor-parallel-size 3",
        ["--tensor-parallel-size", "cannot be split over 3 ranks"],
    ),
    "such a TP in a file": ("run tp-of-3.yaml", ["tp-of-3.yaml:3:deployment.tensor_parallel_size"]),
    "a TP above the GPUs": (
        f"{ON_H200} --tensor-parallel-size 16",
        ["--tensor-parallel-size: 16 ranks", "which has 8 GPUs"],
    ),
    "more replicas than fit": (f"{ON_H200} --tensor-parallel-size 4 --replicas 3", ["--replicas"]),
    "a model that does not fit": (
        f"{ON_H200} --model llama-3.1-405b --weights bf16 --tensor-parallel-size 4",
        ["llama-3.1-405b", "--tensor-parallel-size 8"],
    ),
    "a model that fits nowhere": (
        f"{ON_H200} --model llama-3.1-405b --weights bf16 --gpu-memory-utilization 0.5",
        ["llama-3.1-405b needs", "it takes 16 GPUs, of 8"],
    ),
    "zero blocks": (
        f"{ON_H200} --num-gpu-blocks-override 0",
        ["--num-gpu-blocks-override: '0' should be greater"],
    ),
    "a missing trace": (f"{ON_H200} --trace god.csv", ["god.csv"]),
    "an empty trace": (f"{ON_H200} --trace empty.csv", ["empty.csv"]),
    "a trace of a header": (f"{ON_H200} --trace header-only.csv", ["header-only.csv"]),
    "a bad row": (f"{ON_H200} --trace bad-row.csv", ["bad-row.csv:3:input_tokens", "many"]),
    "a trace and a preset": (
        f"{ON_H200} --trace good.csv --workload azure-conv",
        ["give either a preset or a trace"],
    ),
    "a model of another kind": (f"{ON_H200} --model config.json", ["config.json", "num_local_experts"]),
    "an unwritable folder": (f"{ON_H200} --out /proc/nothing", ["/proc/nothing"]),
    "a file for a folder": (f"{ON_H200} --out good.csv", ["good.csv"]),
    "a scenario that cannot be saved": (f"{ON_H200} --save-scenario no/where.yaml", ["no/where.yaml"]),
    "an event of an unknown part": (
        "run no-such-nic.yaml",
        ["no-such-nic.yaml:3:events.0.nic: no nic of hgx-h200-8 is called 'nic9'; did you mean nic"],
    ),
    "an event before the run": ("run early.yaml", ["early.yaml:3:events.0.at: a run begins at 0 s"]),
    "a GPU that stands still": ("run stopped.yaml", ["stopped.yaml:3:events.0.speed: 0 should be greater"]),
    "an event of no part": (
        "run no-part.yaml",
        ["no-part.yaml:3:events.0: an event names one part: link, nic, nvswitch, gpu, replica"],
    ),
    "several systems to run on": ("run several.yaml", ["llmsim compare"]),
    "several systems to make faster": ("elasticity several.yaml", ["names 2 systems", "--topology"]),
    "nothing to make faster": ("elasticity", ["topology: none is named"]),
    "a part that is no faster": (
        "elasticity --topology hgx-h200-8 --percent 0",
        ["--percent: 0 is not above 0"],
    ),
    "a part that is no number": ("elasticity --topology hgx-h200-8 --percent nan", ["--percent: nan is not"]),
    "a way from nowhere": ("waterfall", ["topology: none is named"]),
    "a way to nowhere": ("waterfall single.yaml", ["single.yaml", "topology", "names one system"]),
    "a way over a third system": (
        "waterfall hgx-h200-8 gb300-nvl72 hgx-h200-8",
        ["names 3 systems", "name two"],
    ),
    "a way with more load at its end": (
        "waterfall scaled.yaml",
        ["scaled.yaml:2:scale_load: both systems serve on as many GPUs", "use total"],
    ),
    "a way to fewer GPUs than ranks": (
        "waterfall hgx-h200-8 rtx-pro-6000-4 --tensor-parallel-size 8",
        ["--tensor-parallel-size: 8 ranks on rtx-pro-6000-4, which has 4 GPUs"],
    ),
    "a way to fewer GPUs than a replica takes": (
        "waterfall h100-pcie-8 rtx-pro-6000-2 --weights bf16",
        ["--model: a replica takes 4 GPUs on h100-pcie-8, and rtx-pro-6000-2 has 2", "smaller --weights"],
    ),
    "a way to a system that nobody knows": (
        "waterfall hgx-h200-8 gb300-nvl7",
        ["topology: no topology called 'gb300-nvl7'", "did you mean gb300-nvl72"],
    ),
    "a class that is none": (
        "waterfall hgx-h200-8 gb300-nvl72 --order computer",
        ["--order: no class called 'computer'", "did you mean compute"],
    ),
    "a class named twice": (
        "waterfall hgx-h200-8 gb300-nvl72 --order compute,compute",
        ["--order: names compute twice"],
    ),
    "a way to a system without such weights": (
        "waterfall gb300-nvl72 hgx-h200-8 --weights nvfp4",
        ["--weights: h200-sxm-141gb has no nvfp4", "--weights bf16"],
    ),
    "one system to compare": ("compare single.yaml", ["single.yaml", "topology"]),
    "nothing to compare": ("compare", ["topology"]),
    "an unknown system to compare": (
        "compare hgx-h200-8 gb30-nvl72",
        ["topology: no", "gb300-nvl72"],
    ),
    "an unknown kind": ("catalog device", ["no kind of entry called 'device'", "devices"]),
    "an unknown entry": ("catalog devices h200-smx", ["no device called 'h200-smx'", "h200-sxm-141gb"]),
    "a graph of an unknown system": ("topology gb30-nvl72", ["no topology", "gb300-nvl72"]),
    "a fabric of one node": ("topology hgx-h200-8 --fabric rail", ["--nodes: ", "use --nodes 2 or more"]),
    "a scenario with a fabric of one node": (
        "run --topology hgx-h200-8 --fabric rail",
        ["--fabric: joins several nodes, and there is one", "use --nodes 2 or more"],
    ),
    "a cable between three": (
        "run --topology hgx-h200-8 --nodes 3 --fabric direct",
        ["--fabric: a direct cable joins two nodes, not 3", "--fabric rail"],
    ),
    "an oversubscribed cable": (
        "run --topology hgx-h200-8 --nodes 2 --fabric direct --oversubscription 2",
        ["--oversubscription: a direct cable has no switch"],
    ),
    "nodes of a system of several": (
        "run --topology dgx-spark-2 --nodes 2",
        ["--nodes: dgx-spark-2 is 2 nodes already"],
    ),
    "a waterfall of two pools": (
        "waterfall hgx-h100-8 hgx-h200-8 --prefill-replicas 1 --decode-replicas 1",
        ["--prefill-replicas: a waterfall is between deployments of one pool"],
    ),
    "a pool without the other": (
        f"{ON_H200} --prefill-replicas 2",
        ["needs a decode pool", "--decode-replicas"],
    ),
    "pools that are too large": (
        f"{ON_H200} --prefill-replicas 2 --decode-replicas 7",
        ["--decode-replicas: 2 replicas of 1 GPUs and 7 replicas of 1 GPUs need 9 of the 8 GPUs"],
    ),
    "a TP of a pool that does not divide the heads": (
        f"{ON_H200} --prefill-replicas 1 --decode-replicas 1 --decode-tp 3",
        ["--decode-tp: decode pool: ", "use --decode-tp 1, 2, 4, 8"],
    ),
    "too many stages of a pool in a file": (
        "run pool-of-stages.yaml",
        ["pool-of-stages.yaml:5:", "decode pool: 16 pipeline stages", "--decode-pp 8"],
    ),
    "fp8 on Ampere": (
        "run --topology hgx-a100-8",
        ["--weights: ", "no fp8 matrix products", "--weights bf16"],
    ),
}


@pytest.fixture(autouse=True)
def _user_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)


@pytest.mark.parametrize(("arguments", "said"), FAULTS.values(), ids=FAULTS)
def test_bad_input_is_one_line_and_exit_status_2(arguments: str, said: list[str]) -> None:
    result = CliRunner().invoke(main, arguments.split())
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("llmsim: error: ")
    assert result.stderr.count("\n") == 1
    for part in said:
        assert part in result.stderr
    assert sorted(os.listdir()) == sorted(FILES)


def llmsim(*arguments: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "simulator", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


def test_a_real_process_shows_no_traceback() -> None:
    process = llmsim("run", "bare-number.yaml")
    stdout, stderr = process.communicate()
    assert process.returncode == 2
    assert stdout == ""
    assert stderr.startswith("llmsim: error: bare-number.yaml:3:goodput.ttft: 2 has no unit")
    assert "Traceback" not in stderr


def test_an_interrupt_leaves_no_half_result() -> None:
    endless = ["--detail", "step", "--num-prompts", "1000000", "--out", "out"]
    process = llmsim("run", "--topology", "hgx-h200-8", *endless)
    while not list(Path().glob(".out.*")):  # the folder to be is there: the run has begun
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    try:
        stdout, stderr = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130
    assert stdout == ""
    assert stderr.strip() == "llmsim: error: interrupted"
    assert sorted(os.listdir()) == sorted(FILES)


def test_a_reader_that_leaves_early_is_no_error() -> None:
    process = llmsim("catalog")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    process.wait()
