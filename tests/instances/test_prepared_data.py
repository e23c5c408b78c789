from bert_jax.instances.prepared_data import publish_prepared
from bert_jax.system.bucket import objects, place_of
from bert_jax.system.copies import worked_on


def test_a_set_in_a_bucket_is_finished_by_its_record(bucket):
    there = place_of(f"{bucket}/data/length-32")
    worked_on(there).mkdir()
    for name in ("prepared.json", "piece_counts.safetensors", "train-00000.array_record"):
        (worked_on(there) / name).write_text(name)
    publish_prepared(there)
    generations = {name: int(stored.generation) for name, stored in objects(there).items()}
    assert max(generations, key=generations.get) == "prepared.json" and len(generations) == 3
