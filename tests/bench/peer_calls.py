"""Other libraries' calls on the rows of bench_inputs: call(i) -> output [T, nv, 128], states [N, nv, 128 (k), 128 (v)].

Every function gives {name: call}; it raises ImportError when the library is not there. States are handed over in the layout that the
library takes, and converted only to be compared."""
import torch


def offsets(case, dtype):
    return torch.arange(case.N + 1, dtype=dtype, device="cuda") * (case.T // case.N) if case.N > 1 else None


def log_form(f, case, data, **options):
    """chunk_gated_delta_rule of flash-linear-attention and of FlashQLA: rows [1, T, ...], g the logarithm of the decay."""
    cu = offsets(case, torch.int32)

    def call(i):
        r = data[i]
        o, S = f(r.q[None], r.k[None], r.v[None], r.log_decay[None], r.dense_beta[None], initial_state=r.h0, output_final_state=True,
                 cu_seqlens=cu, **options)
        return o[0], S
    return call


def fla_prefill(case, data):
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    return {"flash-linear-attention": log_form(chunk_gated_delta_rule, case, data)}


def fla_steps(case, r, rows):
    from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule
    q, k, v, g, beta = (x.view(case.B, rows, *x.shape[1:]) for x in (r.q, r.k, r.v, r.log_decay, r.dense_beta))

    def call(i):
        o, S = fused_recurrent_gated_delta_rule(q, k, v, g, beta=beta, initial_state=r.states[i], output_final_state=True)
        return o.flatten(0, 1), S
    return {"flash-linear-attention" + ("" if rows == 1 else ", last state"): call}


def flashqla_prefill(case, data):
    from flash_qla import chunk_gated_delta_rule
    calls = {"FlashQLA": log_form(chunk_gated_delta_rule, case, data)}
    if case.N == 1 and case.nv >= 32 and case.T >= 2048:
        calls["FlashQLA, sequence split"] = log_form(chunk_gated_delta_rule, case, data, force_intra_cp=True)
    return calls


def flashinfer_prefill(case, data):
    from flashinfer.gdn_prefill import chunk_gated_delta_rule
    cu = torch.arange(case.N + 1, dtype=torch.int64, device="cuda") * (case.T // case.N)
    v_major = [r.h0.transpose(2, 3).contiguous() for r in data]

    def with_split(use_cp):
        def call(i):
            r = data[i]
            o, S = chunk_gated_delta_rule(r.q, r.k, r.v, r.dense_decay, r.dense_beta, initial_state=v_major[i], output_final_state=True,
                                          cu_seqlens=cu, use_cp=use_cp)
            return o, S.transpose(2, 3)
        return call

    calls = {"FlashInfer": with_split("auto")}
    if case.N == 1 and case.nv == 48 and case.T in (1168, 2048, 4593, 8192, 32768):
        calls["FlashInfer, one kernel"] = with_split(False)
    return calls


def flashinfer_gates(r, case, rows):
    return [r.zero, r.a.view(case.B, rows, case.nv), r.zero, r.b.view(case.B, rows, case.nv)]


def flashinfer_decode(case, r):
    from flashinfer import gdn_decode
    q, k, v = (x.view(case.B, 1, *x.shape[1:]) for x in (r.q, r.k, r.v))
    out = torch.empty_like(v)
    v_major = [s.transpose(2, 3).contiguous() for s in r.states]
    half = [s.bfloat16() for s in v_major]

    def form(f, states, turned):
        def call(i):
            f(q, k, v, states[i], *flashinfer_gates(r, case, 1), output=out, use_qk_l2norm=False)
            return out[:, 0], states[i].transpose(2, 3) if turned else states[i]
        return call

    return {"FlashInfer": form(gdn_decode.gated_delta_rule_decode, r.states, False),
            "FlashInfer, V-major": form(gdn_decode.gated_delta_rule_decode_pretranspose, v_major, True),
            "FlashInfer, V-major, bf16 state": form(gdn_decode.gated_delta_rule_decode_pretranspose, half, True)}


def flashinfer_verify(case, r, rows):
    from flashinfer.gdn_decode import gated_delta_rule_mtp
    q, k, v = (x.view(case.B, rows, *x.shape[1:]) for x in (r.q, r.k, r.v))
    out, slots = torch.empty_like(v), torch.arange(case.B, dtype=torch.int32, device="cuda")
    kept = torch.empty(case.B, rows, case.nv, 128, 128, device="cuda")
    v_major = [s.transpose(2, 3).contiguous() for s in r.states]

    def form(state_of, **options):
        def call(i):
            gated_delta_rule_mtp(q, k, v, v_major[i], slots, *flashinfer_gates(r, case, rows), output=out, use_qk_l2norm=False, **options)
            return out.flatten(0, 1), state_of(i).transpose(2, 3)
        return call

    return {"FlashInfer, outputs alone": form(lambda i: v_major[i], disable_state_update=True),
            "FlashInfer, last state": form(lambda i: v_major[i], disable_state_update=False),
            "FlashInfer, all states": form(lambda i: kept[:, -1], disable_state_update=True, intermediate_states_buffer=kept)}
