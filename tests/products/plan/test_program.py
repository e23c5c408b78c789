import pytest

from bert_jax.products.plan.program import Program

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
    assert (outer.kind, outer.operands, outer.elements) == ("while", ("known",), [[(4, True)], [(16, True)]])
    assert outer.called == ["cond.1", "body.1"]
    assert program.computations["cond.1"].root == "lt" and program.devices == 8
    assert program.computations["cond.1"].instructions["limit"].literal == "3"


def elements_of(shape):
    """The arrays of each element of a parameter of this shape, each with its bytes."""
    text = f"HloModule one\n\nENTRY %main (x: f32[]) -> f32[] {{\n  ROOT %x = {shape} parameter(0)\n}}\n"
    return Program(text).computations["main"].instructions["x"].elements


def test_arrays_are_measured_where_they_lie():
    assert elements_of("bf16[4,64]{1,0:T(8,128)(2,1)S(1)}") == [[(512, False)]]
    elements = elements_of("(f32[], pred[7]{0}, (u8[3]{0:S(0)}, /*index=2*/token[]), s4[6])")
    assert elements == [[(4, True)], [(7, True)], [(3, True), (0, True)], [(3, True)]]


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


MOVING = """HloModule jit_step

%inner (p: f32[3,100]) -> f32[1,100] {{
  %p = f32[3,100]{{1,0}} parameter(0)
  %zero = s32[] constant(0)
  ROOT %layer = f32[1,100]{{1,0}} dynamic-slice(%p, %zero, %zero), dynamic_slice_sizes={{1,100}}
}}

%layers (stacked: f32[3,100], into: f32[3,100]) -> (f32[3,100], f32[100], f32[3,100]) {{
  %stacked = f32[3,100]{{1,0}} parameter(0)
  %into = f32[3,100]{{1,0}} parameter(1)
  %start = s32[] constant(0)
  %one = f32[1,100]{{1,0}} fusion(%stacked), kind=kLoop, calls=%inner
  %twice = f32[1,100]{{1,0}} add(%one, %one)
  %flat = f32[100]{{0}} bitcast(%twice)
  %updated = f32[3,100]{{1,0}} dynamic-update-slice(%into, %twice, %start, %start)
  ROOT %both = (f32[3,100]{{1,0}}, f32[100]{{0}}, f32[3,100]{{1,0}}) tuple(%updated, %flat, %stacked)
}}

ENTRY %main (x: f32[3,100], near: f32[3,100]) -> f32[3,100] {{
  %x = f32[3,100]{{1,0}} parameter(0)
  %near = f32[3,100]{{1,0:T(8,128)S(1)}} parameter(1)
  ROOT {line}
}}
"""
ARRAY, SLICE = 1200, 400


@pytest.mark.parametrize(
    "line, moved",
    [
        ("%a = f32[3,100]{1,0} add(%x, %x)", 3 * ARRAY),
        ("%a = f32[3,100]{1,0} add(%x, %near)", 2 * ARRAY),
        ("%a = f32[3,100]{1,0:S(1)} add(%near, %near)", 0),
        ("%a = f32[300]{0} bitcast(%x)", 0),
        ("%a = f32[1,100]{1,0} dynamic-slice(%x, %near), dynamic_slice_sizes={1,100}", 2 * SLICE),
        ("%a = (f32[3,100]{1,0:S(1)}, f32[3,100], u32[]{:S(2)}) copy-start(%x)", ARRAY),
        ("%a = (f32[3,100], f32[3,100]{1,0:S(1)}, u32[]{:S(2)}) copy-start(%near)", ARRAY),
        ("%a = f32[3,100] copy-done(%x)", 0),
        ("%a = ((f32[3,100]), f32[1,100]{1,0:S(1)}, s32[]{:S(2)}) slice-start(%x), slice={[0:1], [0:100]}", SLICE),
        ('%a = f32[3,100] custom-call(), custom_call_target="AllocateBuffer"', 0),
        ("%a = f32[3,100] all-reduce(%x), channel_id=1", 0),
        # One slice read, one put into the second array in place, one given; the first array handed through.
        ("%a = (f32[3,100], f32[100], f32[3,100]) fusion(%x, %x), kind=kLoop, calls=%layers", 3 * SLICE),
        ("%a = (f32[3,100], f32[100]{0:S(1)}, f32[3,100]) fusion(%near, %x), kind=kLoop, calls=%layers", SLICE),
    ],
)
def test_what_is_moved_is_what_lies_in_memory_and_is_touched(line, moved):
    assert Program(MOVING.format(line=line)).moved_bytes() == moved


SENDING = """HloModule jit_step, num_partitions=8

%all-reduce-scatter.1 (part: f32[64]) -> f32[16] {{
  %part = f32[64]{{0}} parameter(0)
  %all = f32[64]{{0}} all-reduce(%part), channel_id=9, replica_groups={{{{0,1,2,3}},{{4,5,6,7}}}}, to_apply=%add
  ROOT %mine = f32[16]{{0}} dynamic-slice(%all, %part), dynamic_slice_sizes={{16}}
}}

%begun (in: f32[16]) -> f32[64] {{
  %in = f32[16]{{0}} parameter(0)
  ROOT %gather.1 = f32[64]{{0}} all-gather(%in), channel_id=4, replica_groups=[2,4]<=[8], dimensions={{0}}
}}

%beside (in.2: f32[16]) -> f32[64] {{
  %in.2 = f32[16]{{0}} parameter(0)
  ROOT %gather.2 = f32[64]{{0}} all-gather(%in.2), channel_id=4, replica_groups=[2,4]<=[8], dimensions={{0}}
}}

%body (state: f32[16]) -> f32[16] {{
  ROOT %state = f32[16]{{0}} parameter(0)
{body}
}}

%condition (state.2: f32[16]) -> pred[] {{
  %turn = s32[] constant(0)
  %limit = s32[] constant(6)
  ROOT %lt = pred[] compare(%turn, %limit), direction=LT
}}

ENTRY %main (x: f32[16]) -> f32[16] {{
  %x = f32[16]{{0}} parameter(0)
{lines}
  ROOT %loop = f32[16]{{0}} while(%x), condition=%condition, body=%body
}}
"""


def sent(*lines, body=()):
    """Bytes sent by a program with these lines, of which those of `body` run in its loop."""
    indented = ["".join(f"  {line}\n" for line in part) for part in (lines, body)]
    return Program(SENDING.format(lines=indented[0], body=indented[1])).sent_bytes()


@pytest.mark.parametrize(
    "line, expected",
    [
        ("%a = f32[100]{0} all-reduce(%x), replica_groups={}", 700),
        ("%a = (f32[50], /*index=1*/bf16[20]{0:T(128)}) all-reduce(%x), replica_groups=[4,2]<=[8]", 240),
        ("%a = bf16[80]{0} all-gather(%x), replica_groups={{0,1,2,3},{4,5,6,7}}", 120),
        ("%a = f32[20]{0} reduce-scatter(%x), replica_groups=[2,4]<=[8]", 240),
        ("%a = s8[80]{0} all-to-all(%x), replica_groups=mesh['data'=2,'fsdp'=4] {'fsdp'}", 60),
        ("%a = s8[80]{0} all-to-all(%x), replica_groups=mesh['data'=2,'fsdp'=4] {'data','fsdp':(1)2}", 60),
        ("%a = (f32[16]{0}, f32[16]{0}, u32[]{:S(2)}, u32[]) collective-permute-start(%x), channel_id=1", 64),
        ("%a = ((f32[4], f32[2]), (f32[16], f32[8])) all-gather-start(%x), replica_groups=[2,4]<=[8]", 72),
        ("%a = f32[16]{0} fusion(%x), kind=kCustom, calls=%all-reduce-scatter.1", 192),
    ],
)
def test_bytes_sent_are_those_of_a_ring(line, expected):
    assert sent(line) == expected


def test_the_end_of_an_asynchronous_one_is_not_another():
    begun = "%start = f32[100]{0} all-reduce-start(%x), replica_groups=[1,8]<=[8], channel_id=1"
    assert sent(begun, "%done = f32[100]{0} all-reduce-done(%start)") == 700


def test_one_that_is_spread_over_fusions_counts_once():
    parts = (f"%f.{name} = f32[64] fusion(%x), kind=kCustom, calls=%{name}" for name in ("begun", "beside"))
    assert sent(*parts) == 192


def test_those_in_a_loop_are_counted_at_each_turn():
    alike = "%{} = f32[100]{{0}} all-reduce(%x), channel_id={}, replica_groups=[1,8]<=[8]"
    assert sent(alike.format("a", 1), alike.format("c", 3), body=[alike.format("b", 2)]) == 8 * 700
