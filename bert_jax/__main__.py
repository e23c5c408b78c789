"""The command `bert-jax`, as `python -m bert_jax`."""

from bert_jax.cli.main import main

if __name__ == "__main__":
    main()
