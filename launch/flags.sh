# Sourced by the launchers: the compiler flags that matter for throughput and aren't on by themselves. What the caller has
# set comes after them and so wins. Each was tried with the libraries of launch/constraints.txt: an unknown one ends the run.

# tpu_flags: for libtpu, which reads LIBTPU_INIT_ARGS; XLA_FLAGS doesn't know these. The latency-hiding scheduler and
# asynchronous all-gathers (for --mesh.fsdp) are on by themselves. https://openxla.org/xla/flags_guidance, "v5e/Async",
# and CF_FOR_ALL_REDUCE in MaxText's benchmarks/xla_flags_library.py.
tpu_flags() {
  local flags=(
    # Gradients are summed over the chips while the next layer's are computed, in the same loops. Only both
    # flags together do this.
    --xla_enable_async_all_reduce=true
    --xla_tpu_enable_async_collective_fusion_fuse_all_reduce=true
  )
  export LIBTPU_INIT_ARGS="${flags[*]} ${LIBTPU_INIT_ARGS:-}"
}
