"""Each file of a run, damaged: `bert-jax verify` notices it, or the file is one that changes nothing.

launch/test.sh --tier slow tests/cli/test_damaged_runs.py -s damages each in each way, at many places, and prints the
counts.
"""

import fnmatch
import random
from collections import Counter

from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.verification import GOOD, READABLE, verify
from bert_jax.system.errors import BertJaxError

CHANGES_NOTHING = ["metrics.jsonl", "events.jsonl", ".lock", ".owner", "*/.lock", "tensorboard/*", "profile/*", "*.png"]
"""Logs, and what is written for people or for the moment: no checksum covers them."""


def flipped(content, rng):
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


KINDS = {
    "a bit flipped": lambda content, others, rng: flipped(content, rng),
    "cut short": lambda content, others, rng: content[: rng.randrange(len(content))],
    "deleted": lambda content, others, rng: None,
    "swapped with another file": lambda content, others, rng: rng.choice(others),
}


def noticed(run):
    """Whether `verify` finds damage, or something unfinished, or ends in an error of ours; another fails the test."""
    try:
        return any(verdict.damage or verdict.remark not in (GOOD, READABLE) for verdict in verify(RunDirectory(run)))
    except BertJaxError:
        return True


def fits(name, patterns):
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def test_damage_of_every_kind_to_every_file_is_noticed(tiny_copy, slow):
    run = tiny_copy.path
    rng, counts, escaped = random.Random(0), Counter(), []
    contents = {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}
    assert not noticed(run)
    for path, content in contents.items():
        name, others = path.relative_to(run).as_posix(), [other for other in contents.values() if other != content]
        kinds = [*KINDS] if slow else ["a bit flipped", rng.choice([*KINDS][1:])]
        for kind in kinds:
            for _ in range(1 if kind == "deleted" or not slow else 25):
                if not content and kind != "deleted":
                    continue  # nothing is in it that could be damaged
                worse = KINDS[kind](content, others, rng)
                if worse is None:
                    path.unlink()
                else:
                    path.write_bytes(worse)
                verdict = "noticed" if noticed(run) else "harmless" if fits(name, CHANGES_NOTHING) else "not noticed"
                counts[kind, verdict] += 1
                if verdict == "not noticed":
                    escaped.append(f"{name}: {kind}")
                path.write_bytes(content)
    for kind in KINDS:
        told = ", ".join(f"{verdict} {counts[kind, verdict]}" for verdict in ("noticed", "harmless", "not noticed"))
        print(f"damage, {kind}: {told}")
    assert not escaped
