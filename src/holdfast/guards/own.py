"""Guards of your own: classes that a config names, made and called with care.

    [guards.own.slump]
    guard = "my_guards:Slump"      # a subclass of holdfast.Guard
    drop = 0.3                     # everything else goes to its constructor

They decide after all others, in the order in which they stand, so they can read `guard/<name>/...` of every guard
before them. What one of them raises, and an answer that is no list of decisions, stops the run with the guard's name.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, get_args

from holdfast.errors import ConfigError, GuardStop, HoldfastError, nearest
from holdfast.guards.guard import Guard
from holdfast.records import Decision, DecisionKind, Signals

T = TypeVar("T")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
KINDS = get_args(DecisionKind)
LIGHTS = ("green", "yellow", "red")


def own_guards(tables: Mapping[str, Any], taken: Collection[str]) -> list[Guard]:
    """Return the guards of `[guards.own]` that are not switched off; `taken` are the names of ours."""
    return [OwnGuard(name, make_own(name, tables[name], taken)) for name in switched_on(tables)]


def switched_on(tables: Mapping[str, Any]) -> list[str]:
    """Return the names of the guards that are not switched off."""
    return [
        name
        for name, table in tables.items()
        if not isinstance(table, Mapping) or table.get("enabled", True)
    ]


def make_own(name: str, table: Any, taken: Collection[str]) -> Guard:
    """Return one guard, made by its class with its settings."""
    where = f"guards.own.{name}"
    if not NAME.fullmatch(name) or name in taken:
        raise ConfigError(
            f"{where}: a guard of your own cannot be called '{name}'. Its name begins with a letter, has letters, digits "
            f"and '_', and is none of ours: {', '.join(taken)}."
        )
    if not isinstance(table, Mapping) or not isinstance(table.get("guard"), str):
        raise ConfigError(
            f"{where} must name a class that is a guard. Type for example: --{where}.guard my_guards:Slump"
        )
    settings = {key: value for key, value in table.items() if key not in ("guard", "enabled")}
    kind = _class(where, str(table["guard"]))
    try:
        made = kind(**settings)
    except Exception as error:  # a constructor may raise anything
        raise ConfigError(
            f"{where}: {table['guard']} cannot be made with {settings or 'no settings'}: {error}."
        ) from error
    if not isinstance(made, Guard):
        raise ConfigError(
            f"{where}: {table['guard']} makes a {type(made).__name__}, which is no holdfast.Guard."
        )
    return made


def _class(where: str, text: str) -> Callable[..., Any]:
    module_name, _, name = text.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever the user's file does when it is imported
        raise ConfigError(
            f"{where}: '{text}' cannot be imported: {type(error).__name__}: {error}. It takes 'module:Class', "
            f"searched in {os.getcwd()} and among the installed packages."
        ) from None
    found = getattr(module, name, None)
    if not callable(found):
        have = [n for n in vars(module) if callable(getattr(module, n)) and not n.startswith("_")]
        raise ConfigError(
            f"{where}: the module '{module_name}' has no class '{name}'.{nearest(name, have)}"
        )
    kind: Callable[..., Any] = found
    return kind


class OwnGuard(Guard):
    """Asks a guard of your own, and checks what it answers."""

    def __init__(self, name: str, guard: Guard) -> None:
        self.name, self.guard = name, guard
        self.reads_starts = guard.reads_starts
        guard.name = name

    def initial(self, signals: Signals) -> list[Decision]:
        return self._ask("initial", signals)

    def requeue(self, signals: Signals) -> list[Decision]:
        return self._ask("requeue", signals)

    def replan(self, signals: Signals) -> list[Decision]:
        return self._ask("replan", signals)

    def final(self, signals: Signals) -> list[Decision]:
        return self._ask("final", signals)

    def step(self, signals: Signals) -> list[Decision]:
        return self._ask("step", signals)

    def light(self) -> str:
        light = self._call("light", self.guard.light)
        return light if light in LIGHTS else "yellow"

    def status(self) -> dict[str, Any]:
        return dict(self._call("status", self.guard.status))

    def state_dict(self) -> dict[str, Any]:
        return self._call("state_dict", self.guard.state_dict)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._call("load_state_dict", lambda: self.guard.load_state_dict(state))

    def _ask(self, question: str, signals: Signals) -> list[Decision]:
        answer = self._call(question, lambda: getattr(self.guard, question)(signals))
        if not isinstance(answer, list | tuple):
            raise self._wrong(question, f"returned {answer!r}. It returns a list of decisions")
        for decision in answer:
            if not isinstance(decision, Decision):
                raise self._wrong(question, f"returned {decision!r}, which is no holdfast.Decision")
            if decision.kind not in KINDS:
                raise self._wrong(
                    question,
                    f"decided '{decision.kind}'.{nearest(str(decision.kind), KINDS)} Decisions are: {', '.join(KINDS)}",
                )
        return list(answer)

    def _call(self, question: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except HoldfastError:
            raise
        except Exception as error:  # a guard may raise anything
            at = traceback.extract_tb(error.__traceback__)[-1]
            what = f"raised {type(error).__name__}: {error} at {at.filename}:{at.lineno}"
            raise self._wrong(question, what) from error

    def _wrong(self, question: str, what: str) -> GuardStop:
        return GuardStop(
            f"The guard '{self.name}' {what} ({type(self.guard).__name__}.{question}). The run keeps its last "
            "checkpoint: mend the guard, then resume."
        )
