"""TensorBoard event files, without TensorFlow and without torch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any


class TensorBoard:
    """Writes scalars; a resumed run hides what was written after its checkpoint.

    `meta/started` and `meta/init` are there at once: a directory without them was never written to.
    """

    def __init__(self, directory: Path, resumed_at: int | None) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        _pass_the_second_of_the_newest_file(directory)
        self._writer = EventFileWriter(str(directory), max_queue_size=100, flush_secs=30)
        if resumed_at is not None:
            log = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(self._event(session_log=log), resumed_at + 1)
        self._mark(resumed_at or 0)

    def _mark(self, step: int) -> None:
        """Say when this process began, and flush."""
        from tensorboard.compat.proto import summary_pb2, tensor_pb2, types_pb2

        plugin = summary_pb2.SummaryMetadata.PluginData(plugin_name="text")
        began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        text = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[began.encode()])
        about = summary_pb2.SummaryMetadata(plugin_data=plugin)
        row = self._summary.Value(tag="meta/started", metadata=about, tensor=text)
        self._write(self._event(summary=self._summary(value=[row])), step)
        self.scalars({"meta/init": 1.0}, step)
        self.flush()

    def scalars(self, values: dict[str, Any], step: int) -> None:
        """Write every number of `values` under its own tag."""
        rows = [
            self._summary.Value(tag=tag, simple_value=float(value))
            for tag, value in values.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        if rows:
            self._write(self._event(summary=self._summary(value=rows)), step)

    def _write(self, event: Any, step: int) -> None:
        event.step, event.wall_time = step, time.time()
        self._writer.add_event(event)

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._writer.flush()

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


def _pass_the_second_of_the_newest_file(directory: Path) -> None:
    """TensorBoard reads files in the order of their names, and a name is exact to the second."""
    stamps = [path.name.split(".")[3] for path in directory.glob("events.out.tfevents.*")]
    newest = max((int(stamp) for stamp in stamps if stamp.isdigit()), default=0)
    time.sleep(min(max(newest + 1 - time.time(), 0.0), 1.0))
