"""`holdfast metrics` on a run, as a user would type it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.store.files import write_json
from holdfast.store.journal import Lines


def call(*words: str, code: int = 0) -> str:
    """Run one command in this process; return what it printed (with errors, if it must fail)."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            got = main(["metrics", *words])
        except SystemExit as left:
            got = int(left.code or 0)
    assert got == code, out.getvalue() + err.getvalue()
    return out.getvalue() if code == 0 else out.getvalue() + err.getvalue()


def line(update: int) -> dict[str, Any]:
    return {
        "update": update,
        "env_steps": 100 * update,
        "train/entropy_mean": 1.0 / update,
        "train/lr": 0.001,
        "time/at": 1e9 + 60.0 * update,
        "guard/gate/state": "open",
    }


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    run = tmp_path / "runs" / "first"
    run.mkdir(parents=True)
    (run / "run.toml").write_text('[world]\nname = "shoal"\n')
    metrics = Lines(run / "metrics.jsonl", rotate_bytes=800)
    for update in range(1, 41):
        metrics.write(line(update))
        metrics.flush()
    metrics.close()
    episodes = Lines(run / "episodes.jsonl")
    for n in range(5):
        episodes.write({"update": n, "ended": "truncated" if n % 2 else "terminated", "steps": n})
    episodes.close()
    return tmp_path / "runs"


def test_tail_shows_the_last_updates_over_all_pieces(runs: Path) -> None:
    text = call("tail", "first", "-n", "12", "--runs-dir", str(runs))
    assert len(text.splitlines()) == 12
    assert text.splitlines()[-1].startswith("update 40  env_steps 4000  entropy_mean 0.0250")
    rows = [json.loads(row) for row in call("tail", str(runs / "first"), "--json").splitlines()]
    assert rows == [line(update) for update in range(31, 41)]
    text = call("tail", "first", "--keys", "train/lr", "-n", "1", "--runs-dir", str(runs))
    assert text.strip() == "lr 0.0010"
    text = call("tail", "first", "--kind", "episodes", "-n", "1", "--runs-dir", str(runs))
    assert text.strip() == "update 4  ended terminated  steps 4"


def test_tail_of_a_name_that_no_line_has_is_an_error_with_the_nearest_name(runs: Path) -> None:
    where = ("--runs-dir", str(runs))
    text = call("tail", "first", "--keys", "update,train/entropy", *where, code=2)
    assert "'train/entropy'. Did you mean 'train/entropy_mean'? There are:" in text
    assert len(text.splitlines()) == 1


def test_tail_shows_lines_that_have_one_of_the_names_and_nothing_else(runs: Path) -> None:
    metrics = Lines(runs / "first" / "metrics.jsonl")
    metrics.write({"update": 41, "probe/return_mean": 2.5})
    metrics.write({"update": 42})
    metrics.close()
    where = ("--runs-dir", str(runs))
    text = call("tail", "first", "--keys", "probe/return_mean", *where)
    assert text == "return_mean 2.500\n"
    text = call("tail", "first", "--keys", "update, probe/return_mean", "-n", "2", "--json", *where)
    rows = [json.loads(row) for row in text.splitlines()]
    assert rows == [{"update": 41, "probe/return_mean": 2.5}, {"update": 42}]
    assert call("tail", "first", "--keys", "probe/return_mean", "-n", "1", *where) == ""


def test_an_option_of_another_action_is_refused(runs: Path) -> None:
    where = ("--runs-dir", str(runs))
    text = call("tail", "first", "--match", "train/*", *where, code=2)
    assert "--match is not for 'tail', but for summary" in text
    assert "--keys" in call("summary", "first", "--keys", "train/lr", *where, code=2)


def test_summary_says_what_every_signal_did(runs: Path) -> None:
    write_json(
        runs / "first" / "sinks.json",
        {
            "id": "x",
            "sinks": {
                "box": {
                    "state": "cut_off",
                    "sent": 3,
                    "dropped": 2,
                    "errors": 0,
                    "problem": "it hung",
                }
            },
        },
    )
    words = ("summary", "first", "--match", "train/*", "--runs-dir", str(runs))
    told = json.loads(call(*words, "--json"))
    rows = {row["name"]: row for row in told["signals"]}
    assert set(rows) == {"train/entropy_mean", "train/lr"}
    entropy = rows["train/entropy_mean"]
    assert (entropy["count"], entropy["first"], entropy["last"], entropy["min"], entropy["max"]) == (
        40, 1.0, 0.025, 0.025, 1.0,
    )  # fmt: skip
    assert entropy["mean"] == pytest.approx(sum(1 / u for u in range(1, 41)) / 40)
    text = call(*words)
    assert "sink box: cut_off, 3 sent, 2 dropped: it hung" in text


@pytest.mark.parametrize("x", ["env_steps", "update", "time"])
def test_plot_writes_a_picture(runs: Path, tmp_path: Path, x: str) -> None:
    out = tmp_path / "curves.png"
    words = ("plot", "first", "train/*", "--x", x, "--out", str(out), "--runs-dir", str(runs))
    told = json.loads(call(*words, "--json"))
    assert told["signals"] == ["train/entropy_mean", "train/lr"]
    assert out.read_bytes()[:4] == b"\x89PNG"


def test_query_answers_sql_over_all_files(runs: Path) -> None:
    asked = "SELECT ended, count(*) AS n FROM episodes GROUP BY ended ORDER BY ended"
    told = json.loads(call("query", "first", asked, "--json", "--runs-dir", str(runs)))
    assert told == {"columns": ["ended", "n"], "rows": [["terminated", 3], ["truncated", 2]]}
    asked = 'SELECT m."update", "train/lr" FROM metrics m JOIN episodes USING ("update") ORDER BY 1'
    text = call("query", "first", asked, "--runs-dir", str(runs))
    assert text.splitlines()[0].split() == ["update", "train/lr"]
    assert len(text.splitlines()) == 5


def test_parquet_is_written_on_demand(runs: Path) -> None:
    told = json.loads(call("parquet", "first", "--json", "--runs-dir", str(runs)))
    assert told["rows"] == {"episodes": 5, "metrics": 40}
    assert all(Path(path).is_file() for path in told["files"].values())


def test_schema_is_the_page_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    assert call("schema") == page
    assert "metrics.jsonl" in json.loads(call("schema", "--json"))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["dance"], 2, "invalid choice"),
        (["tail"], 2, "Which run?"),
        (["tail", "fisrt"], 5, "There is no run 'fisrt'"),
        (["tail", "first", "--kind", "metrcs"], 2, "Did you mean 'metrics'"),
        (["tail", "first", "-n", "-1"], 2, "0 or more"),
        (["tail", "first", "oops"], 2, "'oops' is not understood"),
        (["summary", "first", "--match", "zzz"], 2, "fits --match 'zzz'"),
        (["plot", "first"], 2, "What shall be drawn"),
        (["plot", "first", "trian/lr"], 2, "Did you mean 'train/lr'"),
        (["plot", "first", "train/lr", "--x", "moon"], 2, "invalid choice"),
        (["plot", "first", "train/lr", "--out", "/proc/none/x.png"], 5, "Cannot write"),
        (["query", "first"], 2, "one argument in quotes"),
        (["query", "first", "SELECT", "1"], 2, "one argument in quotes"),
        (["query", "first", "SELEC 1"], 2, "The query failed"),
    ],
)
def test_bad_input_is_explained(runs: Path, words: list[str], code: int, said: str) -> None:
    assert said in call(*words, "--runs-dir", str(runs), code=code)


def test_a_missing_package_is_named_with_what_to_install(runs: Path, tmp_path: Path) -> None:
    code = (
        "import sys, importlib.util as util\n"
        "real = util.find_spec\n"
        "util.find_spec = lambda name, *a: None if name in ('duckdb', 'pyarrow') else real(name, *a)\n"
        "from holdfast.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    for words in (["query", "first", "SELECT 1"], ["parquet", "first"]):
        done = subprocess.run(
            [sys.executable, "-c", code, "metrics", *words, "--runs-dir", str(runs)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 3
        assert "pip install 'holdfast[report]'" in done.stderr
        assert "Traceback" not in done.stderr


HOLD = """
import sys
from pathlib import Path
from holdfast.run import RunDirectory
from holdfast.store.journal import Lines
run = Path(sys.argv[1])
with RunDirectory(run).lock():
    lines = Lines(run / "metrics.jsonl", rotate_bytes=800)
    print("holding", flush=True)
    for word in sys.stdin:
        lines.write({"update": int(word), "env_steps": 0})
        lines.flush()
    lines.close()
"""


def trainer(run: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "holding\n"
    return process


def follower(runs: Path) -> subprocess.Popen[str]:
    words = ["metrics", "tail", "first", "-n", "1", "--follow", "--keys", "update"]
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words, "--runs-dir", str(runs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background has SIGINT ignored, and a child inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None and process.stdout.readline() == "update 40\n"
    return process


def test_follow_shows_lines_as_they_come_and_ends_with_the_run(runs: Path) -> None:
    training = trainer(runs / "first")
    following = follower(runs)
    assert training.stdin is not None and following.stdout is not None
    for update in range(41, 61):
        training.stdin.write(f"{update}\n")
        training.stdin.flush()
        assert following.stdout.readline() == f"update {update}\n"
    training.communicate()
    out, err = following.communicate(timeout=60)
    assert (following.returncode, out, err) == (0, "", "")


def test_leaving_a_tail_with_ctrl_c_is_no_error(runs: Path) -> None:
    training = trainer(runs / "first")
    following = follower(runs)
    os.kill(following.pid, signal.SIGINT)
    _, err = following.communicate(timeout=60)
    training.communicate()
    assert (following.returncode, err) == (0, "")
