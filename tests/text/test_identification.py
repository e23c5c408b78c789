import subprocess
import sys

import pytest

from bert_jax.text.identification import BLOCK_CHARACTERS, UNDETERMINED, UNSURE, blocks, identified

LANGUAGES = [
    ("Mathematics is the study of numbers, shapes and the ways in which they change.", "en"),
    ("Die Mathematik ist eine Wissenschaft, welche aus der Untersuchung von Figuren und dem Rechnen entstand.", "de"),
    ("Les mathématiques sont un ensemble de connaissances abstraites résultant de raisonnements logiques.", "fr"),
    ("Математика — наука об отношениях между объектами, о которых ничего не известно, кроме их свойств.", "ru"),
    (
        "Математика — наука, яка первісно виникла як один із напрямків пошуку істини у сфері просторових відношень.",
        "uk",
    ),
    ("ریاضیات دانش بررسی کمیت‌ها و ساختارها و فضا و دگرگونی است که در زندگی روزمره به کار می‌رود.", "fa"),
    ("गणित ऐसी विद्याओं का समूह है जो संख्याओं, मात्राओं, परिमाणों और उनके आपसी रिश्तों का अध्ययन करती हैं।", "hi"),
    ("数学は、数・量・図形などに関する学問であり、理学の一種である。", "ja"),
    ("수학은 수, 양, 구조, 공간, 변화 등의 개념을 다루는 학문이다.", "ko"),
    ("數學是研究數量、結構以及空間等概念及其變化的一門學科", "zh"),
    ("Τα μαθηματικά είναι η επιστήμη που μελετά θέματα που αφορούν την ποσότητα.", "el"),
    # With all languages in the choice, the model is unsure: a short text is compared with those of its script alone.
    ("البيت القديم من الحجر", "ar"),
    # Relatives that are known are not taken for unknown ones.
    ("בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת הַשָּׁמַיִם וְאֵת הָאָרֶץ׃ וְרוּחַ אֱלֹהִים מְרַחֶפֶת עַל־פְּנֵי הַמָּיִם׃", "he"),
    ("የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው። ሕሊና ስላለው አንዱ ሌላውን መመልከት ይገባዋል።", "am"),
    # Names in another script change nothing.
    ("WindowsWear成立于2012年，是一家实时橱窗展示的时尚科技公司，总部位于纽约 New York City, Fifth Avenue", "zh"),
    ("日名倉山（ひなくらやま）是位在兵庫縣宍粟市佐用郡佐用町和岡山縣美作市的山標高公尺選定為關西百名山", "zh"),
    # A language that the model does not know is taken for no other.
    ("די מענטש גייט מיט אַ קינד אויפן גאַס, און דער טאַטע זעט זיי ביידע.", UNDETERMINED),  # Yiddish
    ("ייִדיש איז אַ גערמאַנישע שפּראַך וואָס די אַשכּנזישע ייִדן האָבן גערעדט.", UNDETERMINED),
    ("ትግርኛ ኣብ ኤርትራን ኣብ ሰሜናዊ ኢትዮጵያን ዝዝረብ ቋንቋ እዩ። ኩሎም ሰባት ብኽብርን ብመሰልን ማዕሪን እዮም።", UNDETERMINED),  # Tigrinya
    ("кӗнеке ачасем киле атте ҫурт паян урамра ҫак ҫанталӑк выляҫҫӗ пурӑнать эпӗ", UNDETERMINED),  # Chuvash
    (
        "кĕнеке ачасем киле атте çурт паян урамра çак çанталăк выляççĕ пурăнать эпĕ",
        UNDETERMINED,
    ),  # in Latin look-alikes
    ("کوردستان وڵاتێکە لە ڕۆژهەڵاتی ناوەڕاست کە بەسەر چوار وڵاتدا دابەش کراوە.", UNDETERMINED),  # Sorani
    # What is hardly language is unsure.
    ("", UNSURE),
    ("1867-1954 :: 3.14", UNSURE),
    ("Anna B.", UNSURE),
    ("x = (a + b) ** 2; y[i] -> f(x)", UNSURE),
    ("Berlin Paris London Madrid", UNSURE),
    ("ᚠᚢᚦᚨᚱᚲ ᚠᚢᚦᚨᚱᚲ", UNSURE),
    ("བོད་སྐད་ནི་བོད་ཀྱི་སྐད་ཡིག་ཡིན།", UNSURE),  # Tibetan or Dzongkha
]


@pytest.mark.parametrize("text, language", LANGUAGES)
def test_the_language_of_a_text_is_known_by_its_script_or_the_model(text, language):
    assert identified(text) == language


def test_the_script_decides_without_the_model():
    text = "수학은 수, 양, 구조, 공간, 변화 등의 개념을 다루는 학문이다."
    code = f"import sys; from bert_jax.text.identification import identified; print(identified({text!r}))"
    code += "; print('py3langid' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ko", "False"]


def test_blocks_hold_the_whole_text_in_parts_of_about_equal_size():
    lines = ["short", "a line " * 300, "w" * 50, "end"]
    found = list(blocks(lines))
    assert "".join(found).replace(" ", "") == "".join(lines).replace(" ", "")
    assert all(0.5 * BLOCK_CHARACTERS < len(block) < 1.5 * BLOCK_CHARACTERS for block in found[:-1])
    assert found[-1] == f"{'w' * 50} end"
