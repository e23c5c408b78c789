from bert_jax.inference.examples import masked_examples
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

TOKENIZER = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *"river brid ##ge cats a , . 山".split()]))


def test_a_whole_word_of_one_piece_is_masked():
    examples = masked_examples(["A River, a bridge.", "a , .", "山 a"], TOKENIZER, 62)
    assert examples == [("A [MASK], a bridge.", "River"), ("[MASK] a", "山")]


def test_the_choice_is_the_same_every_time():
    sentences = ["river cats a river , cats ."]
    assert masked_examples(sentences, TOKENIZER, 62) == masked_examples(sentences, TOKENIZER, 62)


def test_a_sentence_longer_than_the_model_is_left_out():
    assert masked_examples(["river a river", "river"], TOKENIZER, 2) == [("[MASK]", "river")]
