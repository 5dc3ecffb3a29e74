"""PPO in JAX, our writing: `--variant whole` compiles the whole loop, `one` too, `host` steps the numba world.

`whole`: the shoal's dynamics without neighbours are written in JAX too, so that one compiled call is one update:
rollout, advantages, all minibatches of all epochs. Its starts are simpler than the real ones (no pre-roll of the
predator), which makes its world cheaper, not dearer. `host`: acting and the update are compiled, the world is
the numba one that everybody has, stepped from Python. `one`: a thread pool of one thread, beside which small products are
faster than with one a core.
"""

from __future__ import annotations

import os
from typing import Any

from case import (
    CLIP,
    ENTROPY,
    FISH,
    GAMMA,
    LAMBDA,
    LR,
    MAX_GRAD_NORM,
    NO_MASKS,
    VALUE_COEF,
    Meter,
    read_case,
)


def main() -> None:
    case = read_case()
    from holdfast.learn.fused_simd import LANES

    flags = ["--xla_cpu_prefer_vector_width=512"] if LANES == 16 else []
    if case.threads == 1:
        flags.append("--xla_cpu_multi_thread_eigen=false")
    os.environ["XLA_FLAGS"] = " ".join(flags)
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax

    variant = case.variant or "whole"
    if variant == "one":
        # The pool has a thread for each core that there is when it begins.
        every = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {max(every)})
        jnp.zeros(1).block_until_ready()
        os.sched_setaffinity(0, every)
    whole = variant != "host"
    meter = Meter(case)
    n, steps = case.slots, case.steps

    def init(key: Any) -> Any:
        def net(key: Any, outputs: int, gain: float) -> Any:
            sizes = [11, *case.hidden, outputs]
            gains = [2**0.5] * len(case.hidden) + [gain]
            make = jax.nn.initializers.orthogonal
            return [
                (make(g)(k, (i, o)), jnp.zeros(o))
                for k, i, o, g in zip(
                    jax.random.split(key, len(gains)), sizes[:-1], sizes[1:], gains, strict=True
                )
            ]

        left, right = jax.random.split(key)
        return {"actor": net(left, 5, 0.01), "critic": net(right, 1, 1.0)}

    def run(net: Any, x: Any) -> Any:
        for w, b in net[:-1]:
            x = jnp.tanh(x @ w + b)
        w, b = net[-1]
        return x @ w + b

    def sample(params: Any, obs: Any, key: Any) -> Any:
        logits = jax.nn.log_softmax(run(params["actor"], obs))
        action = jax.random.categorical(key, logits)
        log_prob = jnp.take_along_axis(logits, action[:, None], 1)[:, 0]
        return action, log_prob, run(params["critic"], obs)[:, 0]

    def loss_of(params: Any, batch: Any) -> Any:
        obs, action, old_log_prob, gain, target = batch
        logits = jax.nn.log_softmax(run(params["actor"], obs))
        ratio = jnp.exp(jnp.take_along_axis(logits, action[:, None], 1)[:, 0] - old_log_prob)
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        policy = jnp.maximum(-gain * ratio, -gain * jnp.clip(ratio, 1 - CLIP, 1 + CLIP)).mean()
        value = 0.5 * ((run(params["critic"], obs)[:, 0] - target) ** 2).mean()
        entropy = -(jnp.exp(logits) * logits).sum(-1).mean()
        return policy + VALUE_COEF * value - ENTROPY * entropy

    def adam(params: Any, grads: Any, state: Any) -> Any:
        step, m, v = state
        norm = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(grads)))
        scale = jnp.minimum(1.0, MAX_GRAD_NORM / (norm + 1e-6))
        step = step + 1
        m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * scale * g, m, grads)
        v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * (scale * g) ** 2, v, grads)
        rate, wide = LR / (1 - 0.9**step), 1 - 0.999**step
        params = jax.tree.map(
            lambda p, a, b: p - rate * a / (jnp.sqrt(b / wide) + 1e-5), params, m, v
        )
        return params, (step, m, v)

    def learn(params: Any, state: Any, key: Any, rollout: Any, last_obs: Any) -> Any:
        obs, actions, log_probs, values, rewards, dones = rollout
        last = run(params["critic"], last_obs)[:, 0]

        def back(carry: Any, row: Any) -> Any:
            running, after = carry
            value, reward, done = row
            goes_on = 1.0 - done
            running = reward + GAMMA * after * goes_on - value + GAMMA * LAMBDA * goes_on * running
            return (running, value), running

        _, gains = lax.scan(
            back, (jnp.zeros(n), last), (values, rewards, dones), reverse=True, unroll=8
        )
        flat = [a.reshape(steps * n, *a.shape[2:]) for a in (obs, actions, log_probs, gains)]
        flat.append((gains + values).reshape(-1))

        def minibatch(carry: Any, rows: Any) -> Any:
            params, state, count = carry
            grads = jax.grad(loss_of)(params, [a[rows] for a in flat])
            return (*adam(params, grads, state), count + 1), None

        def epoch(carry: Any, key: Any) -> Any:
            # One sort of random numbers; jax.random.permutation sorts twice.
            order = jnp.argsort(jax.random.bits(key, (steps * n,)))
            order = order.reshape(case.minibatches, case.minibatch)
            return lax.scan(minibatch, carry, order)[0], None

        keys = jax.random.split(key, case.epochs)
        (params, state, count), _ = lax.scan(epoch, (params, state, 0), keys)
        return params, state, count

    key = jax.random.key(0)
    params = init(key)
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = (jnp.zeros(()), zeros, zeros)
    updates = case.warmup + case.updates
    if whole:
        begin, step = shoal(jax, jnp, case.games)

        def update(params: Any, state: Any, key: Any, world: Any, obs: Any) -> Any:
            def one(carry: Any, key: Any) -> Any:
                world, obs = carry
                left, right = jax.random.split(key)
                action, log_prob, value = sample(params, obs, left)
                world, after, reward, done = step(world, action, right)
                return (world, after), (obs, action, log_prob, value, reward, done)

            left, right = jax.random.split(key)
            (world, obs), rollout = lax.scan(one, (world, obs), jax.random.split(left, steps))
            params, state, count = learn(params, state, right, rollout, obs)
            return params, state, world, obs, count

        jitted = jax.jit(update, donate_argnums=(0, 1, 3, 4))
        world, obs = jax.jit(begin)(jax.random.key(1))
        state = jax.tree.map(jnp.array, state)
        for k in range(updates):
            meter.start()
            meter.learn()
            before = int(world["steps"])
            params, state, world, obs, count = jitted(params, state, jax.random.key(k), world, obs)
            jax.block_until_ready(params)
            meter.count_world_steps(int(world["steps"]) - before)
            meter.count_gradient_steps(int(count))
            meter.end()
        name, note = "JAX, whole loop jitted", "world written in JAX, simpler starts (no pre-roll)"
        if variant == "one":
            name, note = f"{name}, pool of one", f"{note}; a thread pool of one thread"
    else:
        real = meter.make_world()
        act = jax.jit(sample)
        jitted_learn = jax.jit(learn, donate_argnums=(0, 1))
        split = jax.jit(jax.random.split, static_argnums=1)
        state = jax.tree.map(jnp.array, state)
        all_obs = np.zeros((steps + 1, n, 11), np.float32)
        all_obs[0] = real.reset(seed=0)[0]
        rewards, mask = np.zeros((steps, n)), np.zeros(n, np.bool_)
        ended, cut = np.zeros((steps, n), np.bool_), np.zeros((steps, n), np.bool_)
        for k in range(updates):
            meter.start()
            all_obs[0] = all_obs[-1] if k else all_obs[0]
            keys = split(jax.random.key(k), steps + 1)
            rows = []
            for t in range(steps):
                rows.append(act(params, all_obs[t], keys[t]))
                chosen = np.asarray(rows[-1][0])
                real.step_into(chosen, all_obs[t + 1], rewards[t], ended[t], cut[t], mask)
            actions, log_probs, values = (jnp.stack(part) for part in zip(*rows, strict=True))
            meter.learn()
            rollout = (
                all_obs[:-1],
                actions,
                log_probs,
                values,
                rewards.astype(np.float32),
                (ended | cut).astype(np.float32),
            )
            params, state, count = jitted_learn(params, state, keys[-1], rollout, all_obs[-1])
            jax.block_until_ready(params)
            meter.count_gradient_steps(int(count))
            meter.end()
        name, note = (
            "JAX, numba world",
            "acting and the update jitted, the numba world stepped from Python",
        )
    meter.report(
        name,
        f"jax {jax.__version__}",
        [note, "donated buffers", *flags, "advantages inside the jitted update", NO_MASKS],
        split=not whole,
    )


def shoal(jax: Any, jnp: Any, games: int) -> Any:
    """Return `(begin, step)` of the shoal without neighbours in JAX (rules: worlds/shoal/kernels.py)."""
    from holdfast.worlds.shoal.arrays import DEATH_PENALTY, KILL_DISTANCE, VISION

    fish, limit = FISH, 150

    def starts(key: Any) -> Any:
        k = jax.random.split(key, 7)
        angle = jax.random.uniform(k[0], (games, fish)) * 2 * jnp.pi
        radius = jax.random.uniform(k[1], (games, fish)) * 8.0
        heading = angle + 0.35 * jax.random.normal(k[2], (games, fish))
        place = jax.random.uniform(k[3], (games,)) * 2 * jnp.pi
        away = jax.random.uniform(k[4], (games,)) * 1.6
        course = jax.random.uniform(k[5], (games,)) * 2 * jnp.pi
        speed = jax.random.uniform(k[6], (games,)) * 3.0
        return {
            "x": radius * jnp.cos(angle),
            "y": radius * jnp.sin(angle),
            "vx": 1.6 * jnp.cos(heading),
            "vy": 1.6 * jnp.sin(heading),
            "alive": jnp.ones((games, fish), bool),
            "px": away * jnp.cos(place),
            "py": away * jnp.sin(place),
            "pvx": speed * jnp.cos(course),
            "pvy": speed * jnp.sin(course),
            "t": jnp.zeros((games,), jnp.int32),
            "steps": jnp.zeros((), jnp.int32),
        }

    def bounce(x: Any, y: Any, vx: Any, vy: Any, back: float) -> Any:
        away = jnp.sqrt(x * x + y * y)
        beyond = away > 10.0
        nx, ny = x / jnp.maximum(away, 1e-9), y / jnp.maximum(away, 1e-9)
        out = (1.0 + back) * (vx * nx + vy * ny)
        return (
            jnp.where(beyond, nx * 10.0, x),
            jnp.where(beyond, ny * 10.0, y),
            jnp.where(beyond, vx - out * nx, vx),
            jnp.where(beyond, vy - out * ny, vy),
        )

    def observe(s: Any) -> Any:
        dx, dy = s["px"][:, None] - s["x"], s["py"][:, None] - s["y"]
        distance = jnp.sqrt(dx * dx + dy * dy)
        radius = jnp.sqrt(s["x"] ** 2 + s["y"] ** 2)
        seen = (distance < VISION).astype(jnp.float32)
        wide = jnp.ones_like(distance)
        rows = [
            s["x"] * 0.1,
            s["y"] * 0.1,
            s["vx"] * 0.5,
            s["vy"] * 0.5,
            (10.0 - radius) * 0.1,
            seen,
            seen * dx / VISION,
            seen * dy / VISION,
            seen * s["pvx"][:, None] * 0.5 * wide,
            seen * s["pvy"][:, None] * 0.5 * wide,
            seen * distance / VISION,
        ]
        obs = jnp.stack(rows, -1) * s["alive"][..., None]
        return obs.reshape(-1, 11), distance, radius

    def begin(key: Any) -> Any:
        s = starts(key)
        return s, observe(s)[0]

    def step(s: Any, action: Any, key: Any) -> Any:
        a = action.reshape(games, fish)
        x, y, vx, vy, alive = s["x"], s["y"], s["vx"], s["vy"], s["alive"]
        speed = jnp.sqrt(vx * vx + vy * vy)
        moving = speed > 0.01
        hx = jnp.where(moving, vx / jnp.maximum(speed, 1e-9), 1.0)
        hy = jnp.where(moving, vy / jnp.maximum(speed, 1e-9), 0.0)
        turns = (a == 1) | (a == 2)
        sine = jnp.where(a == 1, 0.5, -0.5)
        cosine = 0.8660254
        push, brake = jnp.where(a == 0, 0.1, 0.0), jnp.where(a == 3, 0.9, 1.0)
        wx = jnp.where(turns, (cosine * hx - sine * hy) * speed, (vx + push * hx) * brake)
        wy = jnp.where(turns, (sine * hx + cosine * hy) * speed, (vy + push * hy) * brake)
        fast = jnp.maximum(jnp.sqrt(wx * wx + wy * wy) / 2.0, 1.0)
        wx, wy = wx / fast, wy / fast
        qx, qy, wx, wy = bounce(x + wx * 0.1, y + wy * 0.1, wx, wy, 0.5)
        pvy = s["pvy"] + 0.05
        px, py, pvx, pvy = bounce(
            s["px"] + s["pvx"] * 0.1, s["py"] + pvy * 0.1, s["pvx"], pvy, 0.85
        )
        moved = {
            "x": jnp.where(alive, qx, x),
            "y": jnp.where(alive, qy, y),
            "vx": jnp.where(alive, wx, vx),
            "vy": jnp.where(alive, wy, vy),
            "alive": alive,
            "px": px,
            "py": py,
            "pvx": pvx,
            "pvy": pvy,
            "t": s["t"] + 1,
            "steps": s["steps"] + 1,
        }
        _, distance, radius = observe(moved)
        caught = alive & (distance < KILL_DISTANCE)
        stays = alive & ~caught
        near = jnp.where(distance < VISION, 1.5 * distance, 5.0)
        rim = jnp.maximum(0.0, 2.0 * (radius - 9.0))
        reward = jnp.where(caught, DEATH_PENALTY, jnp.where(stays, 0.1 * (2.0 + near - rim), 0.0))
        moved["alive"] = stays
        over = (moved["t"] >= limit) | ~stays.any(1)
        done = caught | (over[:, None] & stays)
        fresh = jax.lax.cond(over.any(), starts, lambda _: moved, key)
        after = {
            name: jnp.where(over.reshape(-1, *[1] * (old.ndim - 1)), fresh[name], old)
            for name, old in moved.items()
            if name != "steps"
        }
        after["steps"] = moved["steps"]
        obs = observe(after)[0]
        return after, obs, reward.reshape(-1), done.reshape(-1).astype(jnp.float32)

    return begin, step


if __name__ == "__main__":
    main()
