import pytest

from bert_jax.system.json_file import Shape, as_shape, parse_json, parse_object, read_object


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "no JSON"),
        (b"{1}\n", "JSON from column 2 on"),
        (b"[\n1 2]", "JSON from line 2, column 3 on"),
        (b"\xff", "not UTF-8"),
        (b"[" * 10**6, "nested more than 64 deep"),
        (b"[" * 65 + b"]" * 65, "nested more than 64 deep"),
        (b"9" * 5000, "thousands of digits"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": 1e999}', "1e999, which is beyond float64"),
        (b'{"\\ud800": 1}', "surrogate"),
        (b'["\\udfff"]', "surrogate"),
    ],
)
def test_what_is_no_json_is_one_line(text, reason):
    with pytest.raises(ValueError, match=reason) as refused:
        parse_json(text)
    assert "\n" not in str(refused.value)


def test_good_json_is_read():
    assert parse_json(b'{"a": [1, 2.5, "\\ud83d\\ude00", null]}') == {"a": [1, 2.5, "😀", None]}
    assert parse_json(b"[" * 64 + b"]" * 64)


def test_an_object_is_asked_for():
    with pytest.raises(ValueError, match="an array"):
        parse_object("[]")


def test_shape_and_size_are_checked(tmp_path):
    class Sizes(Shape):
        rows: int

    path = tmp_path / "sizes.json"
    path.write_text('{"rows": 3, "other": "x"}')
    assert as_shape(read_object(path), Sizes).rows == 3
    with pytest.raises(ValueError, match="more than 10 bytes"):
        read_object(path, most_bytes=10)
    with pytest.raises(ValueError, match="rows is '3': input should be a valid integer"):
        as_shape({"rows": "3"}, Sizes)


def test_an_object_of_millions_of_wrong_values_is_refused_before_each_is_described():
    class Sizes(Shape):
        rows: list[dict[str, int]]

    with pytest.raises(ValueError, match="more than 200,000 values"):
        as_shape({"rows": [{}] * 300_000}, Sizes)
