"""Contenders that take turns: all are alive, one plays, the others wait for a line on their standard input.

A shared machine gives more at one moment and less at the next. Ours fused therefore plays before and after every turn of
everyone else, and a ratio compares a turn with its two neighbours (`table.ratio`), seconds apart.

    players = [Player(command, environment, directory) for ...]    each builds and says READY
    player.turn(number)                                            it plays until it is READY again or ends
    player.record()                                                its JSON line, or why there is none
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

READY = "bench: ready"
"""What an adapter says when it waits for its turn."""
PATIENCE_S = 1800.0


class Player:
    """An adapter in a process of its own."""

    def __init__(self, command: list[str], environment: dict[str, str], directory: Path) -> None:
        self._said = ""
        self._late = False
        self._turns: list[int] = []
        with tempfile.NamedTemporaryFile(dir=directory, delete=False) as errors:
            self._errors = Path(errors.name)
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def wait(self) -> bool:
        """Read until it is ready (True) or has ended (False)."""
        out = self._process.stdout
        assert out is not None
        clock = threading.Timer(PATIENCE_S, self._kill_late)
        clock.start()
        try:
            for line in out:
                if line.strip() == READY:
                    return True
                if line.startswith('{"peer"'):
                    self._said = line
        finally:
            clock.cancel()
        return False

    def turn(self, number: int | None = None) -> bool:
        """Let it play one turn; `number` is kept with the record, without one it is the warm-up."""
        assert self._process.stdin is not None
        try:
            # Past the buffer: what cannot be written must not be tried again when the pipe is closed.
            os.write(self._process.stdin.fileno(), b"go\n")
        except BrokenPipeError:
            return False
        if number is not None:
            self._turns.append(number)
        return self.wait()

    def record(self) -> dict[str, Any]:
        """End it; return its line with the number of the turn of every update, or `{"failed": reason}`."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        self.wait()
        self.close()
        text = self._errors.read_text(errors="replace").split("\n")
        text = [line.strip() for line in text if line.strip()] or ["no output"]
        if self._late:
            return {"failed": f"a turn took more than {PATIENCE_S / 60:.0f} minutes"}
        if not self._said:
            absent = any(word in text[-1] for word in ("ModuleNotFoundError", "ImportError"))
            return {"failed": text[-1][:300], "absent": absent}
        record = dict(json.loads(self._said))
        burst = record["case"]["burst"]
        record["turns"] = [number for number in self._turns for _ in range(burst)]
        return record

    def close(self, kill: bool = False) -> None:
        """Wait for its end, or bring it about, and let its pipes go."""
        if kill:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()

    def _kill_late(self) -> None:
        self._late = True
        self._process.kill()
