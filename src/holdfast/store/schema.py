"""What every record file of a run holds, field by field: the source of `docs/metrics.md`.

A field's name may hold places, such as `guard/<guard>/<name>`, which stand for one or more characters.
Types are JSON's; every number may be null, which is how NaN and infinity are written. `problems` says what a
record holds that is not described here; a test asks it about the files of real runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

SCHEMA = 1
"""Version of the files' layout: it grows when a field changes its meaning."""

Type = Literal["integer", "number", "string", "boolean", "array", "object", "any"]

PYTHON: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "any": (object,),
}


@dataclass(frozen=True)
class Field:
    """One field, or one family of fields."""

    name: str
    type: Type
    doc: str
    always: bool = False
    """Whether every record of the kind has it."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the names that the field stands for."""
        parts = re.split(r"<[^>]+>", self.name)
        return re.compile(".+".join(map(re.escape, parts)))

    def takes(self, value: Any) -> bool:
        """Return whether a value has the field's type."""
        if value is None:
            return True
        if isinstance(value, bool) and self.type in ("integer", "number"):
            return False
        return isinstance(value, PYTHON[self.type])


@dataclass(frozen=True)
class Kind:
    """One kind of record and the file that it stands in."""

    file: str
    doc: str
    fields: tuple[Field, ...]
    lines: bool = True
    """One JSON object a line; otherwise the file is one object."""

    def field(self, name: str) -> Field | None:
        """Return the description of a field: the one of its own name before a family's."""
        for field in self.fields:
            if field.name == name:
                return field
        return next((f for f in self.fields if f.pattern.fullmatch(name)), None)


UPDATE = Field("update", "integer", "updates made so far: the clock of a run", always=True)
STEPS = Field("env_steps", "integer", "steps of all slots together so far", always=True)
AT = Field("at", "string", "local time with its offset", always=True)
WORLDS = ("shoal", "mario", "pursuit")

METRICS = (
    UPDATE,
    STEPS,
    Field("train/policy_loss", "number", "mean of the clipped policy loss over the minibatches"),
    Field("train/value_loss", "number", "mean of the value loss"),
    Field("train/entropy_mean", "number", "entropy of the policy, in nats"),
    Field("train/entropy_max", "number", "the entropy of choosing at random; of discrete actions"),
    Field("train/approx_kl", "number", "how far the policy moved from the one that collected"),
    Field("train/clip_fraction", "number", "share of samples whose ratio was clipped"),
    Field("train/actor_loss", "number", "SAC: entropy's weight times log-density, less the value"),
    Field("train/alpha", "number", "SAC: weight of the entropy"),
    Field("train/q_mean", "number", "SAC: what the critics expect of the policy's actions"),
    Field("train/replay_fill_rate", "number", "how full the memory of older steps is"),
    Field("train/replay_size", "number", "V-trace: steps in the memory"),
    Field("train/replay_capacity", "number", "V-trace: steps that fit into the memory"),
    Field(
        "train/replay_entropy_mean", "number", "V-trace: entropy at the steps drawn from the memory"
    ),
    Field(
        "train/replay_approx_kl", "number", "V-trace: how far the policy moved since it played them"
    ),
    Field("train/replay_clip_fraction", "number", "V-trace: share of them whose weight was cut"),
    Field("train/replay_priority_mean", "number", "V-trace: mean priority in the memory"),
    *(
        Field(
            f"train/replay_priority_p{percent}",
            "number",
            f"V-trace: {percent} % of the priorities in the memory are no higher",
        )
        for percent in (50, 90, 99)
    ),
    Field("train/grad_norm", "number", "mean norm of the gradient before it is limited"),
    Field("train/minibatches", "number", "gradient steps made"),
    Field(
        "train/explained_variance", "number", "how well values predicted returns; 1 is perfectly"
    ),
    Field("train/ewc_penalty", "number", "what elastic weight consolidation adds to the loss"),
    Field(
        "train/belief_nll",
        "number",
        "negative log-likelihood of the opponent's true place, in nats",
    ),
    Field(
        "train/belief_error", "number", "root mean square error of the believed place, in metres"
    ),
    Field("train/reward_mean", "number", "of a slot step, as the world gave it"),
    Field("train/samples", "number", "slot steps that entered the loss"),
    Field("train/masked_share", "number", "share of slot steps without a decision"),
    Field("train/lr", "number", "learning rate as scheduled"),
    Field("train/lr_scale", "number", "factor on it that guards set"),
    Field("train/entropy", "number", "weight of the entropy bonus"),
    Field("train/clip", "number", "clip range of the ratio"),
    Field("train/policy_lag", "integer", "updates by which the policy was older that collected"),
    Field(
        "train/<name>", "number", "further measures of the learner; with roles, `train/<role>/...`"
    ),
    Field("health/<name>", "number", "`nonfinite`: losses and parameters that were not finite"),
    Field("episode/count", "integer", "games finished so far"),
    Field(
        "episode/uncut_count", "integer", "those of them that were not cut; only these are averaged"
    ),
    Field("episode/return_mean", "number", "mean over slots and the last 100 finished games"),
    Field("episode/return_<role>", "number", "the same of one role, where a world has several"),
    Field("episode/length_steps", "number", "mean over the last 100 finished games"),
    *(
        Field(
            f"{world}/<fact>", "number", f"a fact of {world}, mean over the last 100 finished games"
        )
        for world in WORLDS
    ),
    Field(
        "facts/<fact>",
        "number",
        "what a foreign environment tells (`world.facts`), mean over the last 100 finished games",
    ),
    Field(
        "phase/<name>",
        "integer",
        "where in the plan: index, count, first, last and next last update",
    ),
    Field("world/games", "integer", "games at once"),
    Field("world/slots_per_game", "integer", "slots of one game"),
    Field("world/built", "integer", "how many times the world was built"),
    Field(
        "world/<name>",
        "number",
        "a value of the world, read back; with overlap the next rollout has it",
    ),
    Field("probe/<metric>", "number", "a metric of the probe made at this update, if one was"),
    Field("guard/<guard>/<name>", "any", "the status of a guard after it decided"),
    Field("starts/begun", "array", "the starts that episodes of this update began from"),
    Field("starts/ended", "array", "the starts whose episodes ended, with their facts"),
    Field("starts/waiting", "any", "starts that wait in each game"),
    Field("starts/mined", "array", "starts a few seconds before the worst places of death"),
    Field("starts/labels", "array", "the stages whose mined starts are played in this phase"),
    Field("places/worst", "string", "place where most deaths happened lately: stage:area:x"),
    Field("places/<name>", "number", "deaths of this update, places known, share of the worst one"),
    Field("starts/forced", "integer", "games cut by force in this update"),
    Field(
        "starts/<type>/<fact>", "number", "mean of a fact over the episodes from starts of a type"
    ),
    Field("selfplay/<name>", "any", "who learns, against whom, and how much of it"),
    Field("progress/<name>", "number", "measures of progress that guards read"),
    Field("rollout/<name>", "number", "`steps`: slot steps of one rollout"),
    Field("time/update_s", "number", "seconds of the whole update"),
    Field("time/env_steps_per_s", "number", "steps of all slots a second"),
    Field("time/wait_collect_s", "number", "overlap: seconds that learning waited for the rollout"),
    Field("time/wait_learn_s", "number", "overlap: seconds that the rollout waited for learning"),
    Field(
        "time/overlap_efficiency",
        "number",
        "overlap: (collect + learn - both together) / the shorter of the two; 1 is perfect",
    ),
    Field("time/replay_draw_s", "number", "V-trace: seconds of drawing from the memory"),
    Field("time/replay_gather_s", "number", "V-trace: seconds of gathering what was drawn"),
    Field("time/<part>_s", "number", "seconds of a part: collect, learn, probe, world, policy"),
    Field("time/at", "number", "Unix time at which the line was written"),
    Field("time/<name>", "number", "further measures of time"),
)

EPISODES = (
    UPDATE,
    Field("game", "integer", "index of the game", always=True),
    Field("steps", "integer", "length of the episode", always=True),
    Field("return_mean", "number", "undiscounted reward, mean over the game's slots", always=True),
    Field("ended", "string", "terminated, truncated, or the world's own word", always=True),
    Field("cut", "boolean", "true where it was broken off: it has no outcome"),
    Field(
        "start",
        "object",
        "what it began from: seed, snapshot, label, type, origin, id",
        always=True,
    ),
    Field("facts/<fact>", "number", "a number of the world about this episode"),
)

MEASURED = (
    Field("metrics", "object", "every metric by name", always=True),
    Field(
        "intervals",
        "object",
        "95 % intervals `[low, high]` of the metrics that are means",
        always=True,
    ),
)

EVALS = (
    UPDATE,
    STEPS,
    Field("probe", "string", "the protocol, or the world's name", always=True),
    Field("seeds", "array", "seeds of the episodes", always=True),
    *MEASURED,
    Field("detail", "object", "lists by name, such as the return of each episode", always=True),
)

JOURNAL = (
    Field(
        "event",
        "string",
        "run, phase, update, probe, decision, init, or a part's own word",
        always=True,
    ),
    UPDATE,
    AT,
    Field("parameters", "string", "update: short hash of all parameters"),
    Field("guard", "string", "decision: who decided"),
    Field("kind", "string", "decision: what is changed"),
    Field("cause", "object", "decision: signal, value, threshold and window"),
    Field("applied", "any", "decision: the value read back"),
    Field("message", "string", "one sentence for people"),
    Field("<name>", "any", "further facts of the event"),
)

SESSIONS = (
    Field("event", "string", "begin or end", always=True),
    UPDATE,
    AT,
    Field("pid", "integer", "the process that trained", always=True),
    Field("resumed", "boolean", "begin: whether it went on from a checkpoint"),
    Field("changed", "array", "begin: settings that differ from before"),
    Field("reason", "string", "end: finished, interrupted, out_of_time, or the error"),
    Field("<name>", "any", "further facts of the event"),
)

LATEST = (
    Field("schema", "integer", "version of this layout", always=True),
    Field("run", "string", "name of the run", always=True),
    Field("at", "number", "Unix time at which it was written", always=True),
    UPDATE,
    STEPS,
    Field("metrics", "object", "the last line of metrics.jsonl", always=True),
    Field(
        "eval",
        "object",
        "the last line of evals.jsonl without seeds and detail; null before",
        always=True,
    ),
)

SINKS = (
    Field("id", "string", "name of the run at the sinks; a resumed run keeps it", always=True),
    Field("sinks", "object", "by name: state, sent, dropped, errors, problem", always=True),
)

SELFPLAY = (
    UPDATE,
    STEPS,
    Field("phase", "string", "phase that has just been played, such as `S3`", always=True),
    Field("role", "string", "who learned since the last line: pursuer, evader, both", always=True),
    Field("level", "number", "level of the curriculum; 0 without one", always=True),
    Field("sr_p", "number", "share of the games that the pursuer won", always=True),
    Field("low", "number", "lower end of its 95 % interval (Wilson)", always=True),
    Field("high", "number", "upper end", always=True),
    Field("games", "integer", "games played", always=True),
    Field("ne_gap", "number", "|SR_P - SR_E|: distance from an even game", always=True),
    Field("capture_time_mean", "number", "seconds, over the games that ended in capture"),
    Field("captures_by_time", "array", "captures in equal parts of the time limit", always=True),
    Field("time_limit_s", "number", "what `captures_by_time` divides", always=True),
)

KINDS = {
    "metrics": Kind("metrics.jsonl", "One line an update: every signal that guards read.", METRICS),
    "episodes": Kind("episodes.jsonl", "One line a finished game.", EPISODES),
    "evals": Kind("evals.jsonl", "One line a probe.", EVALS),
    "selfplay": Kind("selfplay.jsonl", "One line an evaluation of self-play.", SELFPLAY),
    "journal": Kind("journal.jsonl", "What happened and why.", JOURNAL),
    "sessions": Kind(
        "sessions.jsonl", "One line when a process begins to train and one when it ends.", SESSIONS
    ),
    "latest": Kind(
        "latest.json",
        "The last update and the last probe; always whole, always current.",
        LATEST,
        False,
    ),
    "sinks": Kind("sinks.json", "How the sinks of `run.sinks` fare.", SINKS, False),
}


def problems(kind: Kind, record: Mapping[str, Any]) -> list[str]:
    """Return what a record holds that its kind does not describe; empty means that all is described."""
    found = [
        f"'{field.name}' is missing"
        for field in kind.fields
        if field.always and field.name not in record
    ]
    for name, value in record.items():
        field = kind.field(name)
        if field is None:
            found.append(f"'{name}' is not described")
        elif not field.takes(value):
            found.append(f"'{name}' is {value!r}, not of the type {field.type}")
    return found


def json_schema(kind: Kind) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of one kind of record."""
    exact = [field for field in kind.fields if "<" not in field.name]
    families = [field for field in kind.fields if "<" in field.name]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": kind.file,
        "description": kind.doc,
        "type": "object",
        "properties": {field.name: _json_type(field) for field in exact},
        "patternProperties": {f"^{f.pattern.pattern}$": _json_type(f) for f in families},
        "required": [field.name for field in kind.fields if field.always],
    }


def _json_type(field: Field) -> dict[str, Any]:
    described: dict[str, Any] = {"description": field.doc}
    if field.type != "any":
        described["type"] = [field.type, "null"]
    return described


INTRODUCTION = """# What a run writes down

This page is made from `src/holdfast/store/schema.py`. After a change there, type:

    holdfast metrics schema > docs/metrics.md

`holdfast metrics schema --json` prints the same as JSON Schema. Layout version: {schema}.

Look at the numbers of a run:

    holdfast metrics tail first --follow                # lines as they come; --kind episodes, --keys train/lr
    holdfast metrics summary first --match 'train/*'    # first, last, least, greatest and mean of every signal
    holdfast metrics plot first train/entropy_mean      # plots/metrics.png
    holdfast metrics query first 'SELECT "update", "train/lr" FROM metrics ORDER BY 1 DESC LIMIT 5'
    holdfast metrics parquet first                      # parquet/*.parquet, also written when a run is closed

In SQL every JSONL file of the run is a table of its name, and a name with a slash stands in double quotes.
`query` and `parquet` need `pip install 'holdfast[report]'`.

Files that end in `.jsonl` hold one JSON object a line. The four record files (metrics, episodes, evals, journal) are
cut to the checkpoint when a run resumes, so no line is there twice. A file that has grown large goes on in a new
piece: `metrics.jsonl` is always the newest, older ones are called `metrics.<end>.jsonl.gz`, where `<end>` is the
position of their last byte in the whole; all tools read the pieces as one file. Every number may be `null`: that
is how NaN and infinity are written. In names, `<...>` stands for one or more characters.

Sinks send the numbers of `metrics.jsonl` to other places while the run trains: `--sinks wandb,mlflow,trackio`, or
`module:function` of your own. They work in threads of their own behind a bounded queue. A sink that is too slow loses
numbers (they are counted), and one that raises again and again or hangs is cut off; training never waits for it.
`sinks.json` says how each one fares. The function takes no arguments and returns an object with `start(run)` (`run` has
`name`, `id`, `directory`, `settings`, `resumed_at`), `log(values, update)` for every update, and `close()` at the end; it and
these are called in the sink's own thread.

`heartbeat.json`, `heartbeat.jsonl` and `resources.jsonl` are described in [heartbeat.md](heartbeat.md).
"""


def markdown() -> str:
    """Return `docs/metrics.md`."""
    parts = [INTRODUCTION.format(schema=SCHEMA)]
    for kind in KINDS.values():
        rows = [
            f"## {kind.file}",
            "",
            kind.doc,
            "",
            "| field | type | in every record | meaning |",
            "|---|---|---|---|",
        ]
        for field in kind.fields:
            always = "yes" if field.always else ""
            rows.append(f"| `{field.name}` | {field.type} | {always} | {field.doc} |")
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)
