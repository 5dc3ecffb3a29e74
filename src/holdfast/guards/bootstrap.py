"""Cold-start aids: scripts that play for the policy when it does not get anywhere, and an early boost of a reward.

One machine serves auto-bootstrap (`stall`) and plateau breaker (`plateau`):

    idle      the policy gets on
    armed     updates without progress are being counted; progress goes back to idle
    inject    a script plays a share of the slots
    cooldown  the policy is left alone for a while, then idle

Who plays a slot, the first that applies: an injection (`plateau` before `stall`); the opening of the run: `script`, then
`forward` up to `forward_steps`; the policy. What *forward* means, the first that is known: the setting `forward`; the
best of the forward probe (`forward_probe`), which a new run stores as that setting; RIGHT+B. Steps that a script plays
carry no decision: they are masked and enter no loss.

A script is text for the world, `START:8,RIGHT+B:180`. Here only its length is read; the names are the world's.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any

from msgspec import Meta

from holdfast.errors import ConfigError
from holdfast.guards.facts import Wanted, restore, state_of
from holdfast.guards.guard import Guard, number
from holdfast.guards.progress import Ended, facts_of, own_episodes
from holdfast.records import Cause, Decision, Signals

FORWARD = "RIGHT+B"
"""What runs forward when nobody says otherwise."""
EXAMPLE = "START:8,RIGHT+B:180"


@dataclass(frozen=True)
class BootstrapConfig:
    """When scripts play for the policy, and for how long a reward is boosted at the start."""

    enabled: bool = False
    """Help a policy that does not get anywhere."""
    forward: str = ""
    """Buttons that run forward, such as `RIGHT+B`; empty takes the best of the forward probe, or RIGHT+B."""
    forward_probe: Annotated[int, Meta(ge=0, le=1000)] = 0
    """Steps for which a new run holds every action at the level start to find `forward`; 0 is off."""
    script: str = ""
    """Script that opens the run, such as `START:8,RIGHT+B:180`; empty is none."""
    forward_steps: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """Steps of the opening; what `script` leaves of them is run forward."""
    opening_share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Share of the games that the opening plays."""
    stall_updates: Annotated[int, Meta(ge=0)] = 20
    """Updates without progress that cause an injection; 0 is off."""
    stall_gain: Annotated[float, Meta(ge=0)] = 0.0
    """A mean of `gain_fact` up to this is no progress."""
    plateau_updates: Annotated[int, Meta(ge=0)] = 0
    """Updates over which the best of `fact`, summed over the stages, is compared; 0 is off."""
    plateau_gain: Annotated[float, Meta(gt=0)] = 16.0
    """A best that rose by less than this over them is a plateau."""
    inject: str = ""
    """Script of an injection; empty runs forward for `inject_steps`."""
    plateau_inject: str = ""
    """Script of an injection that a plateau caused; empty takes that of `inject`."""
    inject_steps: Annotated[int, Meta(ge=1, le=100_000)] = 256
    """Steps of an injection without a script."""
    inject_share: Annotated[float, Meta(gt=0, le=1)] = 0.5
    """Share of the games that an injection plays; each injection goes one game further, so that all get their turn."""
    cooldown_updates: Annotated[int, Meta(ge=0)] = 20
    """Updates after an injection in which nothing is counted."""
    max_injections: Annotated[int, Meta(ge=0)] = 0
    """Most injections of a run; 0 is no limit."""
    fact: str = "best_x"
    """Fact of an episode that says how far it came."""
    gain_fact: str = "ground"
    """Fact of an episode that says what it won."""
    done_fact: str = "clear"
    """Fact of an episode that is above 0 when it reached its goal: always progress."""
    early_updates: Annotated[int, Meta(ge=0)] = 0
    """Updates at the start of the run with a boosted reward; 0 is off."""
    early_value: str = "reward_progress"
    """World value that is boosted; its own annealing, if any, holds again after the boost."""
    early_factor: Annotated[float, Meta(gt=0)] = 2.0
    """Factor of the boost."""

    def __post_init__(self) -> None:
        if "," in self.forward or ":" in self.forward:
            raise ConfigError(
                f"forward = '{self.forward}' is not one combination of buttons. "
                f"Write for example '{FORWARD}'; its length is forward_steps or inject_steps."
            )
        for key in ("script", "inject", "plateau_inject"):
            if getattr(self, key):
                script_steps(getattr(self, key), key)

    def scripts(self) -> dict[str, str]:
        """Return every script that may be played, by its setting; the world checks their names beforehand."""
        keys = ("forward", "script", "inject", "plateau_inject")
        return {key: getattr(self, key) for key in keys if getattr(self, key)}


def script_steps(text: str, key: str) -> int:
    """Return how many steps a script lasts; raise a ConfigError if it is not a list of BUTTONS:COUNT."""
    steps = 0
    for k, entry in enumerate(text.split(","), 1):
        match = re.fullmatch(r"\s*[A-Za-z+ ]*[A-Za-z]\s*(?::\s*(\d+)\s*)?", entry)
        count = int(match[1] or 1) if match else 0
        if count < 1:
            raise ConfigError(
                f"{key}: entry {k} ('{entry.strip()}') of '{text}' is not BUTTONS:COUNT with a count of 1 or more. "
                f"Write entries joined by commas, for example '{EXAMPLE}'."
            )
        steps += count
    return steps


class BootstrapGuard(Guard):
    """Plays scripts for a policy that does not get on; boosts a reward in the first updates.

    Reads `starts/ended`, `env_steps`, `world/games`, `world/slots_per_game` and the world value that it boosts.
    """

    name = "bootstrap"
    reads_starts = True

    def __init__(self, config: BootstrapConfig) -> None:
        self.config = config
        self.forward = config.forward or FORWARD
        self.state = "idle"
        self.trigger = ""
        """Why the last script began: `opening`, `stall` or `plateau`."""
        self.remaining = 0
        """Steps of the script that are not played yet."""
        self.resting = 0
        """Updates of the cooldown that are left."""
        self.stalled = 0
        """Updates in a row without progress."""
        self.reached: dict[str, float] = {}
        """The best of each stage."""
        self.bests: deque[float] = deque(maxlen=config.plateau_updates + 1)
        self.injections = 0
        self.slots = 0
        self.boosted = False
        self._boost_to = 0.0
        self._env_steps = 0
        facts = {"gain_fact": config.stall_updates, "fact": config.plateau_updates}
        self._wanted = [
            Wanted(f"guards.bootstrap.{key}", getattr(config, key))
            for key, used in facts.items()
            if used
        ]

    def initial(self, signals: Signals) -> list[Decision]:
        """Return the boost of the first updates and the opening of the run."""
        decisions = self._boost(signals)
        text = self._opening()
        if text:
            cause = Cause("guards.bootstrap.script", text)
            decisions.append(self._play(signals, "opening", text, self.config.opening_share, cause))
        return decisions

    def step(self, signals: Signals) -> list[Decision]:
        decisions = self._boost(signals)
        over = signals.get("starts/ended") or ()
        decisions += [d for one in self._wanted for d in one.look(over, "episodes")]
        self._advance(signals)
        if self.state in ("inject", "cooldown"):
            return decisions
        found = self._watch(own_episodes(signals))
        spent = 0 < self.config.max_injections <= self.injections
        if found is None or spent:
            return decisions
        trigger, cause = found
        self.injections += 1
        text = self.config.inject or f"{self.forward}:{self.config.inject_steps}"
        if trigger == "plateau":
            text = self.config.plateau_inject or text
        return [*decisions, self._play(signals, trigger, text, self.config.inject_share, cause)]

    def requeue(self, signals: Signals) -> list[Decision]:
        """A world that was rebuilt plays no script: what was left of one is over. Of its own reward the boost is taken anew."""
        if self.state == "inject":
            self._rest()
        own = number(signals, f"world/{self.config.early_value}")
        if not self.boosted or own is None or own * self.config.early_factor == self._boost_to:
            return []
        return [self._boost_of(own, signals)]

    def _opening(self) -> str:
        """Return `script`, and forward for what it leaves of `forward_steps`."""
        text = self.config.script
        left = self.config.forward_steps - (script_steps(text, "script") if text else 0)
        parts = [text] if text else []
        return ",".join([*parts, f"{self.forward}:{left}"] if left > 0 else parts)

    def _advance(self, signals: Signals) -> None:
        """Let an injection or a cooldown run off by one update."""
        env_steps = int(number(signals, "env_steps") or 0)
        played = (env_steps - self._env_steps) // max(_slots(signals), 1)
        self._env_steps = env_steps
        if self.state == "cooldown":
            self.resting -= 1
            if self.resting <= 0:
                self.state = "idle"
        elif self.state == "inject":
            self.remaining = max(self.remaining - played, 0)
            if self.remaining == 0:
                self._rest()

    def _rest(self) -> None:
        self.remaining, self.slots = 0, 0
        self.resting = self.config.cooldown_updates
        self.state = "cooldown" if self.resting else "idle"

    def _watch(self, own: Sequence[Ended]) -> tuple[str, Cause] | None:
        """Count updates without progress; return trigger and cause of an injection when there are enough."""
        config = self.config
        gains, reached = facts_of(own, config.gain_fact), facts_of(own, config.fact)
        if not gains and not reached:
            return None
        for episode in own:
            stage = str(episode.get("label") or "")
            for value in facts_of([episode], config.fact):
                self.reached[stage] = max(self.reached.get(stage, value), value)
        if any(done > 0 for done in facts_of(own, config.done_fact)):
            self.bests.clear()
            self.stalled = 0
        elif gains and fmean(gains) <= config.stall_gain:
            self.stalled += 1
        else:
            self.stalled = 0
        if self.reached:  # a stage may rise while the furthest of another stands still
            self.bests.append(sum(self.reached.values()))
        rose = self.bests[-1] - self.bests[0] if self.bests else 0.0
        flat = len(self.bests) > config.plateau_updates > 0 and rose < config.plateau_gain
        if flat:
            window = config.plateau_updates
            return "plateau", Cause(f"rise of {config.fact}", rose, config.plateau_gain, window)
        self.state = "armed" if self.stalled and config.stall_updates else "idle"
        if self.stalled >= config.stall_updates > 0:
            gain = fmean(gains)
            return "stall", Cause(f"mean {config.gain_fact}", gain, config.stall_gain, self.stalled)
        return None

    def _play(
        self, signals: Signals, trigger: str, text: str, share: float, cause: Cause
    ) -> Decision:
        """Enter `inject` and return the decision that lets `text` play a share of the games."""
        slots = self._choose(signals, share)
        self.state, self.trigger = "inject", trigger
        # The action that is being chosen still counts: the script begins one step later. A rollout that was played ahead
        # comes before it.
        ahead = (number(signals, "train/policy_lag") or 0) * (number(signals, "rollout/steps") or 0)
        self.remaining = script_steps(text, "script") + 1 + int(ahead) // max(_slots(signals), 1)
        self.stalled, self.slots = 0, len(slots)
        self.bests.clear()
        message = f"{trigger}: '{text}' plays {len(slots)} slots ({cause})"
        if trigger == "opening":
            message = f"opening: '{text}' plays {len(slots)} slots"
        return Decision(
            "override_actions", cause, name=trigger, value=text, slots=slots, message=message
        )

    def _choose(self, signals: Signals, share: float) -> tuple[int, ...]:
        """Return the slots of a share of the games, evenly spaced; each injection goes one game further."""
        games, each = _games(signals), _slots_per_game(signals)
        count = min(max(round(share * games), 1), games)
        chosen = sorted({(self.injections + k * games // count) % games for k in range(count)})
        return tuple(game * each + slot for game in chosen for slot in range(each))

    def _boost(self, signals: Signals) -> list[Decision]:
        """Return the beginning or the end of the boosted reward, when it is time."""
        config = self.config
        wanted = int(signals.get("update", 0)) + 1 <= config.early_updates
        now = number(signals, f"world/{config.early_value}")
        if wanted == self.boosted or (wanted and now is None):
            return []
        self.boosted = wanted
        name, last = config.early_value, config.early_updates
        cause = Cause("update", int(signals.get("update", 0)), last)
        if not wanted or now is None:
            message = f"{name} is no longer boosted: the phase's own holds again"
            return [Decision("unset_world", cause, name=name, message=message)]
        return [self._boost_of(now, signals)]

    def _boost_of(self, own: float, signals: Signals) -> Decision:
        """Return the decision that boosts the world's own value."""
        name, last = self.config.early_value, self.config.early_updates
        value = self._boost_to = own * self.config.early_factor
        cause = Cause("update", int(signals.get("update", 0)), last)
        message = f"{name} is boosted to {value:g} up to update {last}"
        return Decision("set_world", cause, name=name, value=value, message=message)

    def light(self) -> str:
        return "yellow" if self.state == "inject" and self.trigger != "opening" else "green"

    def status(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "trigger": self.trigger,
            "stalled_updates": self.stalled,
            "remaining_steps": self.remaining,
            "cooldown_updates": self.resting if self.state == "cooldown" else 0,
            "slots": self.slots,
            "injections": self.injections,
            "boosted": int(self.boosted),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "trigger": self.trigger,
            "remaining": self.remaining,
            "resting": self.resting,
            "stalled": self.stalled,
            "reached": [[stage, best] for stage, best in self.reached.items()],
            "bests": list(self.bests),
            "injections": self.injections,
            "slots": self.slots,
            "boosted": self.boosted,
            "boost_to": self._boost_to,
            "env_steps": self._env_steps,
            "wanted": state_of(self._wanted),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state, self.trigger = str(state["state"]), str(state["trigger"])
        self.remaining, self.resting = int(state["remaining"]), int(state["resting"])
        self.stalled = int(state["stalled"])
        self.reached = {str(stage): float(best) for stage, best in state["reached"]}
        self.bests = deque(map(float, state["bests"]), maxlen=self.config.plateau_updates + 1)
        self.injections, self.slots = int(state["injections"]), int(state["slots"])
        self.boosted, self._env_steps = bool(state["boosted"]), int(state["env_steps"])
        self._boost_to = float(state.get("boost_to", 0.0))
        restore(self._wanted, state.get("wanted"))


def _games(signals: Signals) -> int:
    return int(number(signals, "world/games") or 0)


def _slots_per_game(signals: Signals) -> int:
    return int(number(signals, "world/slots_per_game") or 1)


def _slots(signals: Signals) -> int:
    return _games(signals) * _slots_per_game(signals)
