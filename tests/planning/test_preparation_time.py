from conftest import stories

from bert_jax.planning.preparation_time import PreparationTime, planned_preparation

TIME = PreparationTime(chunks=20, shuffled_bytes=10**8, shard_bytes=10**9, vocabulary_seconds=30.0, work_seconds=400.0)


def test_workers_share_the_chunks_and_not_the_vocabulary():
    assert [TIME.seconds(workers) for workers in (1, 10, 20, 100)] == [430.0, 70.0, 50.0, 50.0]
    assert (TIME + TIME).chunks == 40 and (TIME + TIME).seconds(100) == 80.0


def test_the_plan_of_a_preparation_adds_up_its_sources(tiny_config, tmp_path):
    for name, count in (("a", 60), ("b", 30)):
        (tmp_path / f"{name}.txt").write_text(stories(count, first=100 * count))
    sources = tuple(f"text:{tmp_path}/{name}.txt" for name in "ab")
    config = tiny_config.change(data={"source": sources, "language": ("en", "en")})
    facts = dict(planned_preparation(config))
    assert list(facts) == [
        *sources,
        "chunks",
        "shuffled",
        "written",
        "vocabulary",
        "rate, measured",
        "1 worker",
        "10 workers",
        "100 workers",
    ]
    size = sum((tmp_path / f"{name}.txt").stat().st_size for name in "ab")
    assert facts["shuffled"].startswith(f"{size / 1e6:.2f} MB") and "the whole looked at" in facts[sources[0]]
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".txt"]
