"""Stands in for `bert-jax prepare` and `pretrain` in a soak: leaves the files of a run, and survives what a run does.

But for what $STAND_IN/flaw names: `forgets` (steps that are done again give other losses), `dies` (of a full disk),
`ignorant` (reads damaged data).
"""

import json
import os
import shutil
import signal
import sys
import time
import zlib
from pathlib import Path

SAVE_EVERY, LOG_EVERY, STEP_S = 20, 10, 0.002


def sum_of(path):
    return zlib.crc32(path.read_bytes())


class Trainer:
    """One run, from where its newest good checkpoint is."""

    def __init__(self, run, flaw):
        self.run, self.flaw, self.stopped, self.step, self.state = run, flaw, False, 0, 1
        self.shard = run / "data" / "length-64" / "train-00000.array_record"
        for path in reversed(sorted((run / "checkpoints").glob("[0-9]*"))):
            manifest = json.loads((path / "manifest.json").read_text())
            if sum_of(path / "state") == manifest["crc"]:
                self.step, self.state = int(path.name), manifest["bits"]
                print(f"going on from step {self.step}", flush=True)
                break
            path.rename(path.with_name(f"damaged-{path.name}"))
            print(f"{path} is set aside", flush=True)
        self.metrics = run / "metrics.jsonl"
        lines = self.metrics.read_text().splitlines(keepends=True) if self.metrics.exists() else []
        self.kept = [line for line in lines if line.endswith("}\n") and json.loads(line)["step"] <= self.step]
        if self.flaw == "forgets" and self.step:
            self.state += 1

    def train(self):
        while not self.stopped:
            self.step += 1
            time.sleep(STEP_S)
            if self.flaw != "ignorant" and sum_of(self.shard) != int((self.run / "sum").read_text()):
                print(f"{self.shard}: record 3 (record 3 of train) is damaged")
                return 1
            self.state = zlib.crc32(b"%d %d" % (self.state, self.step))
            if self.step % LOG_EVERY == 0:
                line = {"step": self.step, "split": "train", "sequences_per_second": time.time(), "loss": self.state}
                self.kept.append(json.dumps(line) + "\n")
            if self.step % SAVE_EVERY == 0:
                self.save()
        self.save()
        return 143

    def save(self):
        final = self.run / "checkpoints" / f"{self.step:08d}"
        begun = final.with_name("begun")
        try:
            self.metrics.with_name("metrics.tmp").write_text("".join(self.kept))
            self.metrics.with_name("metrics.tmp").replace(self.metrics)
            shutil.rmtree(begun, ignore_errors=True)
            begun.mkdir(parents=True)
            (begun / "state").write_bytes(os.urandom(5000))
            manifest = {"bits": self.state, "crc": sum_of(begun / "state")}
            (begun / "manifest.json").write_text(json.dumps(manifest, indent=2))
            begun.replace(final)
        except OSError as error:
            print(f"checkpoint {self.step} could not be written: {error.strerror}", flush=True)
            if self.flaw == "dies":
                raise
        for old in sorted(final.parent.glob("[0-9]*"))[:-3]:
            shutil.rmtree(old)


def main():
    command, run = sys.argv[1], Path(sys.argv[sys.argv.index("--workdir") + 1])
    flaw = Path(os.environ["STAND_IN"]) / "flaw"
    if command == "prepare":
        trainer = Trainer(run, None)
        trainer.shard.parent.mkdir(parents=True)
        trainer.shard.write_bytes(os.urandom(20_000))
        (run / "sum").write_text(str(sum_of(trainer.shard)))
        return 0
    trainer = Trainer(run, flaw.read_text().strip() if flaw.exists() else None)
    signal.signal(signal.SIGTERM, lambda *_: setattr(trainer, "stopped", True))
    return trainer.train()


if __name__ == "__main__":
    sys.exit(main())
