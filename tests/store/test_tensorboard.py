"""What TensorBoard finds in a run's `tb/`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from holdfast.store.tensorboard import TensorBoard


def read(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TensorBoard's own imports
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        found = EventAccumulator(str(folder))
        found.Reload()
    return found


def test_the_marks_are_there_before_the_first_update(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path, None)
    found = read(tmp_path)
    assert [event.value for event in found.Scalars("meta/init")] == [1.0]
    (started,) = found.Tensors("meta/started")
    assert started.tensor_proto.string_val[0].endswith(b"Z")
    board.close()


def test_files_of_one_second_are_read_in_the_order_they_were_written(tmp_path: Path) -> None:
    for step in range(3):
        board = TensorBoard(tmp_path, None)
        board.scalars({"a": float(step)}, step)
        board.close()
    stamps = [path.name.split(".")[3] for path in tmp_path.iterdir()]
    assert len(set(stamps)) == 3
    assert [event.step for event in read(tmp_path).Scalars("a")] == [0, 1, 2]


def test_a_resumed_run_hides_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path, None)
    for step in (1, 2, 3):
        board.scalars({"a": float(step), "name": "text", "flag": True}, step)
    board.close()
    again = TensorBoard(tmp_path, 2)
    again.scalars({"a": 30.0}, 3)
    again.close()
    found = read(tmp_path)
    assert [(event.step, event.value) for event in found.Scalars("a")] == [
        (1, 1.0),
        (2, 2.0),
        (3, 30.0),
    ]
    assert set(found.Tags()["scalars"]) == {"a", "meta/init"}
