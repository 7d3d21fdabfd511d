import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import densehash
from densehash import cli, demo, progress
from densehash.cli import commands, digits  # noqa: F401  commands add themselves to the app
from densehash.cli.app import app

COMMANDS = ("compare", "demo", "fetch", "info", "paper")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str | int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    output = capsys.readouterr()
    return exit_.value.code or 0, output.out, output.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"densehash {densehash.__version__}\n", "")


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "info")
    assert (code, err) == (0, "")
    assert densehash.__version__ in out
    assert densehash.hamming.instruction_set() in out
    assert all(name in out for name in densehash.hamming.instruction_sets())


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for name in COMMANDS:
        assert f" {name} " in out
    assert "Examples" in out
    assert "--install-completion" in out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_has_an_example_that_can_be_parsed(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    code, out, _ = run(capsys, name, "--help")
    assert code == 0
    words = " ".join(out.replace("│", " ").split())
    examples = words[words.rindex("Examples:") :].split("•")[1:]
    assert examples
    for example in examples:
        program, command, *options = example.split()
        assert (program, command) == ("densehash", name)
        assert all(option in words for option in options if option.startswith("--"))


def test_shells_can_complete_commands() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from densehash.cli import main; main()"],
        env={
            **os.environ,
            "_DENSEHASH_COMPLETE": "complete_bash",
            "COMP_WORDS": "densehash comp",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        check=False,
    )
    assert result.stdout.split() == [b"compact", b"compare"]


def test_a_pipe_that_closes_early_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "from densehash.cli import main; main(['fetch', '--json'])"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.wait(60)
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.returncode != 0


def test_ctrl_c_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", interrupted)
    code, out, err = run(capsys, "demo")
    assert (code, out) == (130, "")
    assert err.startswith("densehash: stopped")
    assert err.count("\n") == 1


@pytest.mark.parametrize("module", ["densehash.errors", "typer", "rich", "densehash.cli.search"])
def test_ctrl_c_while_it_loads_is_one_line(module: str) -> None:
    code = f"""
import sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from densehash.cli import main
main(["--help"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith("densehash: stopped")
    assert done.stderr.count("\n") == 1


def test_every_command_can_be_quiet() -> None:
    names = set()
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        options = [option for one in command.params for option in one.opts]
        assert options.count("--quiet") == options.count("-q") == 1, name
        names.add(name)
    assert {"build", "compare", "search", "verify"} <= names


def test_quiet_shows_nothing_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", -1.0)
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((300, 8)))
    for how in ([], ["--quiet"], ["-q"], []):
        ask = ("encode", str(tmp_path / "X.npy"), "-o", str(tmp_path / "codes.npy"))
        learn = ("fit", str(tmp_path / "X.npy"), "-o", str(tmp_path / "model"), "--force")
        for arguments in (learn, (*ask, "--hasher", str(tmp_path / "model"))):
            code, out, err = run(capsys, *arguments, *how)
            assert code == 0
            assert out != ""
            assert (err == "") == bool(how), arguments  # and one that was quiet leaves no trace


@pytest.fixture(scope="module")
def shown() -> demo.DigitsDemo:
    """What the demo shows if nothing is asked for."""
    return demo.run()


def test_demo_json_is_all_there_is_on_stdout(
    capsys: pytest.CaptureFixture[str], shown: demo.DigitsDemo
) -> None:
    code, out, err = run(capsys, "demo", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result["n_codes"] + result["n_queries"] == 1797
    assert len(result["queries"]) == result["n_queries"]
    first = result["queries"][0]
    assert len(first["neighbours"]) == len(first["digits"]) == result["n_neighbours"]
    assert first["distances"] == sorted(first["distances"])
    scores = {score["method"]: score for score in result["scores"]}
    assert {"LSH", "PCAH", "DSH", "ITQ", "Refined(DSH)"} <= set(scores)
    for score in scores.values():
        assert 0.1 < score["same_digit"] <= result["same_digit_exact"] + 0.02
        assert 0.1 < score["recall"] <= 1
    assert scores["Refined(DSH)"]["recall"] > scores["DSH"]["recall"]
    assert (result["shown"], result["left_out"]) == ("DSH", {})
    assert result["queries"] == digits.plain(shown)["queries"]  # it repeats itself


def test_demo_shows_pictures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, shown: demo.DigitsDemo
) -> None:
    monkeypatch.setattr(demo, "run", lambda **_: shown)
    code, out, err = run(capsys, "demo")
    assert (code, err) == (0, "")
    assert "█" in out
    assert "8 bytes" in out


def test_demo_where_the_terminal_knows_ascii_only(
    monkeypatch: pytest.MonkeyPatch, shown: demo.DigitsDemo
) -> None:
    monkeypatch.setattr(demo, "run", lambda **_: shown)
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, "ascii", write_through=True))
    with pytest.raises(SystemExit) as exit_:
        cli.main(["demo"])
    assert not exit_.value.code
    assert printed.getvalue().isascii()
    assert b"#" in printed.getvalue()


def recalls(result: dict[str, Any]) -> dict[str, float]:
    return {score["method"]: score["recall"] for score in result["scores"]}


def test_the_options_of_the_demo_change_it(
    capsys: pytest.CaptureFixture[str], shown: demo.DigitsDemo
) -> None:
    usual = digits.plain(shown)
    other = json.loads(run(capsys, "demo", "--json", "--bits", "128", "--seed", "1")[1])
    assert (usual["n_bits"], other["n_bits"]) == (64, 128)
    assert recalls(usual)["DSH"] < recalls(other)["DSH"]
    assert "PCAH" in recalls(usual)
    assert "64" in other["left_out"]["PCAH"]
    assert usual["queries"] != other["queries"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--bits", "0"], "n_bits must be from 1 to 4096, got 0"),
        (["demo", "--bits", "many"], "Invalid value for '--bits'"),
        (["demo", "--seed", "-1"], "seed must be from 0 to 4294967295, got -1"),
        (["demo", "--colour"], "No such option"),
        (["dance"], "No such command 'dance'"),
        (["demo", "extra"], "extra"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("densehash: ")
    assert err.count("\n") == 1
    assert message in err
