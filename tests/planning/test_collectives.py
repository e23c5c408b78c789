import pytest

from bert_jax.planning.collectives import collectives
from bert_jax.planning.program import Program

MODULE = """HloModule jit_step, num_partitions=8

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


def found(*lines, body=()):
    indented = ["".join(f"  {line}\n" for line in part) for part in (lines, body)]
    return [
        tuple(dict(each).values()) for each in collectives(Program(MODULE.format(lines=indented[0], body=indented[1])))
    ]


@pytest.mark.parametrize(
    "line, row",
    [
        ("%a = f32[100]{0} all-reduce(%x), replica_groups={}", ("all-reduce", 1, 400, 700)),
        (
            "%a = (f32[50], /*index=1*/bf16[20]{0:T(128)}) all-reduce(%x), replica_groups=[4,2]<=[8]",
            ("all-reduce", 1, 240, 240),
        ),
        ("%a = bf16[80]{0} all-gather(%x), replica_groups={{0,1,2,3},{4,5,6,7}}", ("all-gather", 1, 160, 120)),
        ("%a = f32[20]{0} reduce-scatter(%x), replica_groups=[2,4]<=[8]", ("reduce-scatter", 1, 320, 240)),
        ("%a = s8[80]{0} all-to-all(%x), replica_groups=mesh['data'=2,'fsdp'=4] {'fsdp'}", ("all-to-all", 1, 80, 60)),
        (
            "%a = s8[80]{0} all-to-all(%x), replica_groups=mesh['data'=2,'fsdp'=4] {'data','fsdp':(1)2}",
            ("all-to-all", 1, 80, 60),
        ),
        (
            "%a = (f32[16]{0}, f32[16]{0}, u32[]{:S(2)}, u32[]) collective-permute-start(%x), channel_id=1",
            ("collective-permute", 1, 64, 64),
        ),
        (
            "%a = ((f32[4], f32[2]), (f32[16], f32[8])) all-gather-start(%x), replica_groups=[2,4]<=[8]",
            ("all-gather", 1, 96, 72),
        ),
        ("%a = f32[16]{0} fusion(%x), kind=kCustom, calls=%all-reduce-scatter.1", ("reduce-scatter", 1, 256, 192)),
    ],
)
def test_bytes_are_those_of_the_whole_array_and_of_a_ring(line, row):
    assert found(line) == [row]


def test_the_end_of_an_asynchronous_one_is_not_another():
    lines = [
        "%start = f32[100]{0} all-reduce-start(%x), replica_groups=[1,8]<=[8], channel_id=1",
        "%done = f32[100]{0} all-reduce-done(%start)",
    ]
    assert found(*lines) == [("all-reduce", 1, 400, 700)]


def test_one_that_is_spread_over_fusions_counts_once():
    lines = [f"%f.{name} = f32[64] fusion(%x), kind=kCustom, calls=%{name}" for name in ("begun", "beside")]
    assert found(*lines) == [("all-gather", 1, 256, 192)]


def test_those_in_a_loop_are_counted_at_each_turn():
    alike = "%{} = f32[100]{{0}} all-reduce(%x), channel_id={}, replica_groups=[1,8]<=[8]"
    assert found(alike.format("a", 1), body=[alike.format("b", 2)]) == [("all-reduce", 7, 2800, 4900)]


def test_kinds_come_in_order():
    lines = [
        "%a = f32[4] all-to-all(%x), channel_id=1",
        "%b = f32[4] all-reduce(%x), channel_id=2",
        "%c = f32[4] all-reduce(%x), channel_id=3",
    ]
    assert [(kind, count) for kind, count, *_ in found(*lines)] == [("all-reduce", 2), ("all-to-all", 1)]
