import pytest

from bert_jax.planning.program import Program, buffers

LOOPS = """HloModule jit_step, is_scheduled=true, num_partitions=8

%cond.1 (state.1: (s32[], f32[4])) -> pred[] {
  %state.1 = (s32[]{:T(128)}, f32[4]{0:T(128)}) parameter(0)
  %limit = s32[]{:T(128)} constant(3)
  %turn = s32[]{:T(128)} get-tuple-element(%state.1), index=0
  ROOT %lt = pred[]{:T(512)} compare(%turn, %limit), direction=LT
}

%body.1 (state.2: (s32[], f32[4])) -> (s32[], f32[4]) {
  %state.2 = (s32[]{:T(128)}, /*index=1*/f32[4]{0:T(128)}) parameter(0)
  ROOT %inner = (s32[], f32[4]{0:T(128)}) while(%state.2), condition=%cond.2, body=%body.2
}

%cond.2 (state.3: (s32[], f32[4])) -> pred[] {
  %state.3 = (s32[], f32[4]) parameter(0)
  ROOT %some = pred[] fusion(%state.3), kind=kLoop, calls=%any
}

%any (state.5: (s32[], f32[4])) -> pred[] {
  %state.5 = (s32[], f32[4]) parameter(0)
  ROOT %true = pred[] constant(true)
}

%body.2 (state.4: (s32[], f32[4])) -> (s32[], f32[4]) {
  ROOT %state.4 = (s32[], f32[4]) parameter(0)
}

ENTRY %main (x: (s32[], f32[4])) -> (s32[], f32[4]) {
  %x = (s32[], f32[4]{0:T(128)S(1)}) parameter(0)
  %known = (s32[], f32[4]) while(%x), condition=%cond.2, body=%body.2, backend_config={"known_trip_count":{"n":"5"}}
  ROOT %outer = (s32[], f32[4]) while(%known), condition=%cond.1, body=%body.1, metadata={op_name="a(b)/while"}
}
"""


@pytest.fixture(scope="module")
def program():
    return Program(LOOPS)


def test_instructions_are_taken_apart(program):
    outer = program.computations["main"].instructions["outer"]
    assert (outer.kind, outer.operands, outer.parts) == ("while", ("known",), [[(4, True)], [(16, True)]])
    assert outer.called == ["cond.1", "body.1"] and outer.attribute("body") == "body.1"
    assert program.computations["cond.1"].root == "lt" and program.devices == 8
    assert program.computations["cond.1"].instructions["limit"].literal == "3"
    assert [user.name for user in program.computations["cond.1"].users("turn")] == ["lt"]


def test_arrays_are_measured_where_they_lie():
    assert buffers("bf16[4,64]{1,0:T(8,128)(2,1)S(1)}") == [(512, False)]
    assert buffers("(f32[], pred[7]{0}, u8[3]{0:S(0)}, token[], s4[6])") == [
        (4, True),
        (7, True),
        (3, True),
        (0, True),
        (3, True),
    ]


def test_the_elements_of_a_tuple_are_told_apart():
    text = LOOPS.replace("f32[4]{0:T(128)S(1)}) parameter(0)", "(f32[4]{0}, /*index=2*/s8[3])) parameter(0)")
    elements = Program(text).computations["main"].instructions["x"].parts
    assert elements == [[(4, True)], [(16, True), (3, True)]]


def test_turns_of_loops(program):
    loops = {each.name: each for one in program.computations.values() for each in one.instructions.values()}
    assert program.turns(loops["outer"]) == 3
    assert program.turns(loops["known"]) == 5
    assert program.turns(loops["inner"]) is None


def test_what_is_in_loops_runs_as_often_as_they_turn(program):
    times = {}
    for _, instruction, count in program.executed():
        times[instruction.name] = times.get(instruction.name, 0) + count
    assert times["outer"] == times["known"] == 1 and times["lt"] == times["inner"] == 3
    assert times["state.4"] == 5 + 3  # of the loop of five, and once for each turn of the outer one
    assert "true" not in times  # fused


def test_an_attribute_may_have_breaks():
    """As the kernels of JAX's splash attention have, with libtpu 0.0.42."""
    broken = LOOPS.replace(
        "while(%state.2), ", 'while(%state.2), frontend_attributes={kernel={\n"block":"{\\"q\\": 1}"\n}}, '
    )
    inner = Program(broken).computations["body.1"].instructions["inner"]
    assert inner.called == ["cond.2", "body.2"] and Program(broken).computations["body.1"].root == "inner"
    assert Program(broken).computations.keys() == Program(LOOPS).computations.keys()


def test_a_text_that_is_no_program_is_an_error():
    with pytest.raises(ValueError, match="no ENTRY"):
        Program("HloModule nothing\n")
