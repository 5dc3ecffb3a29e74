"""The tail ledger: which hard starts are replayed, where, when, and what became of them.

A *stage* is a list of starts and a capacity (how many episodes it feeds). The ledger hands the starts of
the present stage to the games in order, again from the front when the capacity exceeds them, and knows
each one by its id:

    queued      in the stage, not handed out yet
    injected    waits in a game's queue; a ticket says which stage and game
    consumed    an episode of that game began from it, at a known update
    ended       with an outcome: success, failure, or cut (it was broken off, or the world was rebuilt under it)

A start is *cured* after `cured_after` successes in a row, each in a later update than the one before, and
*relapsed* when it fails again (or is mined again) afterwards. Starts that were injected but not consumed
come back, in their order, when the world is rebuilt (`requeue`) or its queues turn out shorter than the
tickets. All of it is in `state_dict`, the starts included, so a run resumes without their files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from holdfast.errors import ConfigError
from holdfast.guards.facts import Wanted, restore, state_of
from holdfast.guards.guard import Guard, number
from holdfast.guards.stages import TailStage, parse_stages, wrong_type
from holdfast.guards.supply import Alarm
from holdfast.guards.tail_book import MINED, Book, Success, where
from holdfast.records import Cause, Decision, Signals, Start


@dataclass(frozen=True)
class TailsConfig:
    """Which starts are replayed, how often, and when to say that they run out."""

    enabled: bool = False
    """Replay hard starts."""
    stages: str = ""
    """Files of starts, `updates:path|type=ne|label=x|count=n;...`; a stage feeds updates x games episodes."""
    share: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """Share of resets that get a start; the others begin afresh."""
    depth: Annotated[int, Meta(ge=1)] = 1
    """Most starts that wait in one game."""
    order: Literal["queue", "uncured_first"] = "queue"
    """In order, or relapsed starts first, then uncured ones, then cured ones."""
    repeat: bool = False
    """Begin the last stage again when it is used up."""
    switch_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Go to the next stage when no more than this share of the present one remains. 0: use all of it."""
    force_reset_steps: Annotated[int, Meta(ge=0)] = 0
    """Cut every episode after this many steps, so that starts are used sooner. 0: as the world has it."""
    success_fact: str = "survival"
    """Fact of an episode that decides its outcome. Each of our worlds has a default of its own: shoal `survival`,
    mario `ground`, pursuit `captured`."""
    success_min: float = 0.95
    """Least value of that fact that is a success."""
    done_fact: str = "clear"
    """Fact of an episode that is above 0 when it reached its goal: always a success, however near the goal it began."""
    cured_after: Annotated[int, Meta(ge=1)] = 2
    """Successes in a row, in different updates, that cure a start."""
    warn_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.65
    """Warn when no more than this share of all starts remains. 0: never."""
    warn_patience: Annotated[int, Meta(ge=1)] = 3
    """Updates in a row at that ratio before the warning."""
    mine: bool = False
    """Add fresh starts that failed in training to a live stage, so that the tail is met again; in a world that keeps
    the moments before a death (mario), these moments at the places where it keeps dying. Starts of evaluations are
    never used: they would no longer measure anything."""
    mine_max: Annotated[int, Meta(ge=1)] = 256
    """Most mined starts; cured ones make room first, then the oldest."""
    mine_share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Share of the injections that come from the mined starts while other stages last."""
    mine_uses: Annotated[int, Meta(ge=1)] = 16
    """Injections after which a mined start is given up until it is mined again."""
    mine_type: str = "tail"
    """Type of the mined starts."""

    def __post_init__(self) -> None:
        parse_stages(self.stages, "stages")
        if wrong := wrong_type(self.mine_type):
            raise ConfigError(f"mine_type: {wrong}. Write for example: tail")


class TailLedger(Guard):
    """Replays hard starts and keeps the books on them.

    Reads `world/games`, `world/slots_per_game`, `starts/begun`, `starts/ended`, `starts/waiting`,
    `starts/forced`, `starts/mined` and `starts/labels`.
    """

    name = "tails"
    reads_starts = True

    def __init__(self, config: TailsConfig, stages: Sequence[TailStage] = ()) -> None:
        self.config = config
        success = Success(
            config.success_fact, config.success_min, config.cured_after, config.done_fact
        )
        self.book = Book(stages, config.mine_type, success)
        self._hold: set[int] = set()
        self._credit = 0.0
        self._mine_credit = 0.0
        self._present = 0
        self.alarm = Alarm(config.warn_ratio, config.warn_patience)
        self._wanted = [Wanted("guards.tails.success_fact", config.success_fact)]
        self._now = dict.fromkeys(("episodes", "overrides", "forced_resets", "injections"), 0)
        self._totals = dict(self._now)
        self._update = 0

    def initial(self, signals: Signals) -> list[Decision]:
        """Return what a new world needs: the forced reset, and starts for its next resets."""
        decisions = []
        if self.config.force_reset_steps > 0:
            decisions.append(self._force_reset())
        self._size(signals)
        injected = self._inject(signals)
        self._totals["injections"] += sum(len(d.value) for d in injected)
        return decisions + injected

    def step(self, signals: Signals) -> list[Decision]:
        self._update = int(signals.get("update", 0))
        self._size(signals)
        self._now = dict.fromkeys(self._now, 0)
        self._now["forced_resets"] = int(number(signals, "starts/forced") or 0)
        begun, over = signals.get("starts/begun") or (), signals.get("starts/ended") or ()
        ended = [self._judged(entry) for entry in over]
        unknown = [d for one in self._wanted for d in one.look(over, "episodes")]
        self._count(begun)
        book = self.book
        book.begin(begun, self._update)
        book.end(ended, self._update)
        book.reconcile(signals.get("starts/waiting"))
        if self.config.mine:
            found = signals.get("starts/mined")
            if found is None:
                found = book.failures(ended, self._update)
            book.mine(found, self.config.mine_max)
        decisions = []
        steps = number(signals, "world/force_reset_steps")
        wanted = self.config.force_reset_steps
        if wanted > 0 and steps is not None and round(steps) != wanted:
            decisions.append(self._force_reset())
        decisions += self._move()
        injected = self._inject(signals, signals.get("starts/waiting") or ())
        self._now["injections"] = sum(len(d.value) for d in injected)
        for name, count in self._now.items():
            self._totals[name] += count
        return decisions + injected + self._warn() + unknown

    def _judged(self, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return how an episode ended; one that was cut, or that a script played a step of, has no outcome."""
        if entry.get("cut") or number(entry, "scripted"):
            return {**entry, self.config.success_fact: None}
        return entry

    def requeue(self, signals: Signals) -> list[Decision]:
        """Take back what waited in a world that was rebuilt; return starts for the new one.

        Called after the reset of the new world, with its `world/games` and `world/slots_per_game`. Episodes
        that ran from a start count as cut.
        """
        self.book.clear(self._update)
        self._hold.clear()
        injected = self._inject(signals)
        self._totals["injections"] += sum(len(d.value) for d in injected)
        return injected

    def final(self, signals: Signals) -> list[Decision]:
        """Return the resolution of a warning that is active when the run ends."""
        return self._clear(int(signals.get("update", self._update)), "the run ends")

    def _size(self, signals: Signals) -> None:
        games = _games(signals)
        for stage in self.book.stages:
            if stage.unit == 0 and games:
                stage.unit = stage.count or stage.updates * games

    def _count(self, begun: Sequence[Mapping[str, Any]]) -> None:
        self._now["episodes"] = len(begun)
        for game, key in map(where, begun):
            self._now["overrides"] += bool(key)
            if not key:
                self._hold.discard(game)

    def _move(self) -> list[Decision]:
        """Close the present stage when little of it remains; report every change of stage."""
        if not self.book.stages:
            return []
        stage, ratio = self.book.stages[self._present], self.book.stages[self._present].ratio
        last = self._present == len(self.book.stages) - 1
        name = "stage_done"
        if 0 < ratio <= self.config.switch_ratio and not last and stage.unit:
            stage.close()
            name = "stage_switch"
        new = next(
            (k for k, s in enumerate(self.book.stages) if not s.over), len(self.book.stages) - 1
        )
        if new == self._present:
            return []
        before, self._present = stage, new
        stage = self.book.stages[new]
        cause = Cause("guard/tails/stage_remaining_ratio", ratio, self.config.switch_ratio)
        message = (
            f"tail stage {new + 1} '{stage.label}' ({stage.type}) follows '{before.label}', of which "
            f"{before.consumed} of {before.capacity} were used and {before.skipped} skipped"
        )
        return [Decision("advance_phase", cause, name=name, value=new + 1, message=message)]

    def _inject(self, signals: Signals, reported: Sequence[int] = ()) -> list[Decision]:
        """Fill the queues of the games up to `depth`, for the configured share of resets."""
        config, waiting = self.config, self.book.waiting()
        slots = int(number(signals, "world/slots_per_game") or 1)
        labels = signals.get("starts/labels") or ()
        needy = self.book.mined.needy(self.book.records, config.mine_uses, labels)
        orders: dict[int, Iterator[Start]] = {}
        chosen: list[tuple[int, Start]] = []
        taken: Counter[int] = Counter()
        for game in range(_games(signals)):
            queued = max(waiting[game], int(reported[game]) if game < len(reported) else 0)
            while queued < config.depth and game not in self._hold:
                k = self._next_stage()
                if k is None and not needy:
                    break
                self._credit += config.share
                if self._credit < 1 - 1e-9:
                    self._hold.add(game)  # the next reset of this game begins afresh
                    break
                self._credit -= 1
                if k is None or (needy and self._from_mined()):
                    k, start = MINED, self.book.mined.give(needy, config.mine_uses)
                else:
                    live = self.book.stages[k]
                    if config.order == "uncured_first" and k not in orders:
                        orders[k] = live.ranked(self.book.records)
                    start = live.draw(orders.get(k))
                self.book.hand(game, k, start)
                chosen.append((game, start))
                taken[k] += 1
                queued += 1
        if not chosen:
            return []
        cause = Cause("starts/waiting", sum(waiting.values()), self.config.depth)
        stages = [(self.book.stage(k), taken[k]) for k in sorted(taken)]
        parts = [f"{count} of stage '{stage.label}' ({stage.type})" for stage, count in stages]
        message = f"{len(chosen)} starts wait in games: {', '.join(parts)}"
        return [
            Decision(
                "inject_starts",
                cause,
                name="+".join(stage.label for stage, _ in stages),
                value=[start for _, start in chosen],
                slots=tuple(game * slots for game, _ in chosen),
                message=message,
            )
        ]

    def _next_stage(self) -> int | None:
        """Return the first stage that has a start to give; the last begins again with `repeat`."""
        for k, stage in enumerate(self.book.stages):
            if stage.drawable:
                return k
        if self.config.repeat and self.book.stages and self.book.stages[-1].unit:
            self.book.stages[-1].rounds += 1
            return len(self.book.stages) - 1
        return None

    def _from_mined(self) -> bool:
        """Return whether it is the turn of a mined start."""
        self._mine_credit += self.config.mine_share
        if self._mine_credit < 1 - 1e-9:
            return False
        self._mine_credit -= 1
        return True

    def _warn(self) -> list[Decision]:
        ratio = self.remaining_ratio
        event = self.alarm.watch(self._update, ratio if self.capacity else None)
        if event == "clear":
            return self._clear(self._update, "starts are there again")
        if not event:
            return []
        stage, alarm = self.book.stages[self._present], self.alarm
        about = {
            "update": self._update,
            "stage_label": stage.label,
            "stage_type": stage.type,
            "remaining_ratio": ratio,
            "remaining": self.remaining,
            "threshold": alarm.threshold,
        }
        alarm.events.append(about)
        cause = Cause("guard/tails/remaining_ratio", ratio, alarm.threshold, alarm.patience)
        message = (
            f"tail starts run out: {self.remaining} of {self.capacity} remain ({ratio:.3f}, threshold "
            f"{alarm.threshold:g} for {alarm.patience} updates) in stage '{stage.label}'"
        )
        return [Decision("warn", cause, name="tail_stage", value=dict(about), message=message)]

    def _clear(self, update: int, why: str) -> list[Decision]:
        if not self.alarm.since:
            return []
        ratio, duration = self.remaining_ratio, self.alarm.duration(update)
        event = self.alarm.resolve(update, ratio)
        cause = Cause("guard/tails/remaining_ratio", ratio, self.alarm.threshold, duration)
        message = f"the warning of tail starts is over after {duration} updates: {why}"
        return [Decision("clear", cause, name="tail_stage", value=event, message=message)]

    def _force_reset(self) -> Decision:
        steps = self.config.force_reset_steps
        cause = Cause("guards.tails.force_reset_steps", steps)
        message = f"every episode is cut after {steps} steps"
        return Decision("set_world", cause, name="force_reset_steps", value=steps, message=message)

    @property
    def capacity(self) -> int:
        """Episodes that all stages feed."""
        return sum(stage.capacity for stage in self.book.stages)

    @property
    def remaining(self) -> int:
        """Of these, how many have not begun yet."""
        return sum(stage.remaining for stage in self.book.stages)

    @property
    def remaining_ratio(self) -> float:
        """`remaining` as a share of `capacity`; 0 without stages."""
        return self.remaining / self.capacity if self.capacity else 0.0

    def about(self, key: str) -> dict[str, Any]:
        """Return what happened to the start of this id."""
        return self.book.about(key)

    def light(self) -> str:
        return "yellow" if self.alarm.since else "green"

    def status(self) -> dict[str, Any]:
        """Return the series of the ledger; ratios by stage and by type are of their own capacity."""
        stage = self.book.stages[self._present] if self.book.stages else self.book.mined
        states = Counter(record.state for record in self.book.records.values())
        episodes = self._now["episodes"]
        found: dict[str, Any] = {
            "stage_index": self._present + 1 if self.book.stages else 0,
            "stage_label": stage.label,
            "stage_type": stage.type,
            "stage_progress": stage.progress,
            "stage_remaining_ratio": stage.ratio,
            "remaining": self.remaining,
            "remaining_ratio": self.remaining_ratio,
            "consumed": sum(s.consumed for s in self.book.stages),
            "skipped": sum(s.skipped for s in self.book.stages),
            "capacity": self.capacity,
            "waiting": len(self.book.tickets),
            "override_ratio": self._now["overrides"] / episodes if episodes else 0.0,
            **self._now,
            **{f"{name}_total": count for name, count in self._totals.items()},
            "warn_active": int(self.alarm.since > 0),
            "warn_since": self.alarm.since,
            "warn_duration": self.alarm.duration(self._update),
            "warnings": len(self.alarm.events),
            "cured": states["cured"],
            "relapsed": states["relapsed"],
            "mined": len(self.book.mined.starts),
            "mined_consumed": self.book.mined.consumed,
        }
        for k, s in enumerate(self.book.stages):
            found[f"stage_{k + 1}_remaining_ratio"] = s.ratio
        for kind in dict.fromkeys(s.type for s in self.book.stages):
            mine = [(k, s) for k, s in enumerate(self.book.stages) if s.type == kind]
            capacity, left = sum(s.capacity for _, s in mine), sum(s.remaining for _, s in mine)
            begun = sum(s.rounds for k, s in mine if k <= self._present)
            found[f"remaining_{kind}"] = left
            found[f"remaining_ratio_{kind}"] = left / capacity if capacity else 0.0
            found[f"reinjections_{kind}"] = max(begun - 1, 0)
        return found

    def state_dict(self) -> dict[str, Any]:
        return {
            **self.book.state_dict(),
            "hold": sorted(self._hold),
            "credit": self._credit,
            "mine_credit": self._mine_credit,
            "present": self._present,
            "alarm": self.alarm.state_dict(),
            "now": dict(self._now),
            "totals": dict(self._totals),
            "update": self._update,
            "wanted": state_of(self._wanted),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.book.load_state_dict(state)
        self._hold = set(state["hold"])
        self._credit, self._mine_credit = float(state["credit"]), float(state["mine_credit"])
        self._present, self._update = int(state["present"]), int(state["update"])
        self.alarm.load_state_dict(state["alarm"])
        self._now, self._totals = dict(state["now"]), dict(state["totals"])
        restore(self._wanted, state.get("wanted"))


def _games(signals: Signals) -> int:
    games = number(signals, "world/games")
    return len(signals.get("starts/waiting") or ()) if games is None else int(games)
