"""Holdfast itself: `--variant fused`, `torch`, or `fused-masked` (dead slots enter no loss, as in a real run)."""

from __future__ import annotations

from typing import Any

from case import CLIP, ENTROPY, GAMMA, LAMBDA, LR, MAX_GRAD_NORM, VALUE_COEF, Meter, read_case


def main(argv: list[str] | None = None) -> None:
    case = read_case(argv, pin=argv is None)
    from importlib.metadata import version

    import numpy as np

    from holdfast.collect import Collector, Seat
    from holdfast.jit import compiling
    from holdfast.learn import learner as learner_module
    from holdfast.learn.learner import make_learner
    from holdfast.learn.options import LearnerConfig
    from holdfast.learn.spec import spec_for
    from holdfast.rng import Streams

    kind, _, masks = (case.variant or "fused").partition("-")
    meter = Meter(case)
    world = meter.make_world()
    if not masks:
        see_all(world)
    config = LearnerConfig(
        kind=kind,  # type: ignore[arg-type]
        steps=case.steps,
        epochs=case.epochs,
        minibatch=case.minibatch,
        hidden=case.hidden,
        threads=case.threads,
        lr=LR,
        gamma=GAMMA,
        lam=LAMBDA,
        clip=CLIP,
        entropy=ENTROPY,
        value_coef=VALUE_COEF,
        max_grad_norm=MAX_GRAD_NORM,
    )
    spec = spec_for(
        world.single_observation_space, world.single_action_space, case.hidden, "tanh", False
    )
    learner = make_learner(spec, config, Streams(0), world.num_envs)
    seat = Seat(learner, np.arange(world.num_envs))
    collector = Collector(world, [seat])
    gae = learner_module.gae
    learner_module.gae = meter.timed_advantages(gae)
    samples = 0.0
    try:
        for _ in range(case.warmup + case.updates):
            meter.start()
            collector.collect()
            meter.learn()
            metrics = learner.update(seat.rollout)
            steps = int(metrics["minibatches"])
            samples = metrics["samples"]
            if masks:  # fewer samples, so fewer steps: stated in the table, not comparable
                steps = case.gradient_steps
            meter.count_gradient_steps(steps)
            meter.end()
    finally:
        learner_module.gae = gae
    note = f"masks on: {samples:,.0f} of {case.transitions:,} samples enter the last update's loss"
    meter.report(
        f"ours {kind}" + (", masks on" if masks else ""),
        version("holdfast"),
        [f"learner.kind={kind}", note if masks else "masks off: trains on all slots, as the peers"],
        samples=samples,
        compile_s=compiling.seconds,
    )


def see_all(world: Any) -> None:
    """Let every slot carry a decision always, so that ours does the peers' amount of work."""
    inner, observe = world.step_into, world.observe

    def step_into(*args: Any) -> Any:
        info = inner(*args)
        args[5].fill(True)
        return info

    def observe_all() -> Any:
        obs, mask = observe()
        mask.fill(True)
        return obs, mask

    world.step_into, world.observe = step_into, observe_all


if __name__ == "__main__":
    main()
