"""Transitions/s of the fused learner and its share of this machine's multiply-add limit, by size.

    python bench/fused_speed.py                      # the sizes of the published table, 1 and 2 threads
    python bench/fused_speed.py --learners fused,torch --repeats 7
    python bench/fused_speed.py --growth             # 1, 4, 16, 64, 256 games of 25 slots

The world is left out (random observations). Limit, learners and repeats are interleaved; a row gives the
median and the best of the repeats, and the lowest limit seen, which tells how busy the machine was.
"""

from __future__ import annotations

import argparse
import json
import os
import resource

from holdfast.learn.fused import compile_kernels
from holdfast.learn.fused_bench import bench_learner

SIZES = [((64, 64), 1024), ((64, 64), 8192), ((256, 256), 1024), ((256, 256), 8192)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--learners", default="fused")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    learners = tuple(options.learners.split(","))
    threads = [int(n) for n in options.threads.split(",")]
    print(f"kernels ready in {compile_kernels():.1f} s; load {os.getloadavg()[0]:.1f}")
    if options.growth:
        cases = [((64, 64), 1024, 25 * games) for games in (1, 4, 16, 64, 256)]
    else:
        cases = [(hidden, minibatch, 256 if hidden[0] < 128 else 64) for hidden, minibatch in SIZES]
    print("hidden      minibatch  slots  threads  learner  transitions/s  (best)   share  (best)  "
          "inference s  update s  limit GF/s (low)  RSS MB")  # fmt: skip
    rows = []
    for hidden, minibatch, slots in cases:
        for count in threads:
            found = bench_learner(
                learners, hidden, minibatch, count, slots=slots, repeats=options.repeats
            )
            for kind, r in found.items():
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                print(
                    f"{'x'.join(map(str, hidden)):11s} {minibatch:9d} {slots:6d} {count:8d}  {kind:7s} "
                    f"{r['transitions_per_s']:13,.0f} {r['transitions_per_s_best']:9,.0f} "
                    f"{r['share_of_peak']:6.1%} {r['share_of_peak_best']:7.1%} "
                    f"{r['inference_s']:12.4f} {r['update_s']:9.4f} "
                    f"{r['peak_gflops']:8.0f} ({r['peak_gflops_low']:.0f}) {memory:12.0f}",
                    flush=True,
                )
                rows.append({"hidden": hidden, "minibatch": minibatch, "slots": slots,
                             "threads": count, "learner": kind, **r})  # fmt: skip
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
