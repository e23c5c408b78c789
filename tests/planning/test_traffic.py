import pytest

from bert_jax.planning.program import Program
from bert_jax.planning.traffic import traffic

MODULE = """HloModule jit_step

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
    assert traffic(Program(MODULE.format(line=line))) == moved
