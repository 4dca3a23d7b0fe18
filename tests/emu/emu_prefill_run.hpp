/* emu_prefill_run.hpp - the three launches of the chunk pipeline on an emu_prefill_case.hpp problem, with entries to choose. */
#pragma once
#include "emu_prefill_case.hpp"

/* Entries of one pipeline; core and _ext forms. Types are taken from the sources. */
template <class WU, class WUX, class SP, class SPX, class O, class OX> struct prefill_entries {
    const char *name;
    WU wu;
    WUX wu_ext;
    uint32_t wu_block, wu_smem;
    SP spine;
    SPX spine_ext;
    uint32_t spine_block, spine_smem;
    O fwd_o;
    OX fwd_o_ext;
    uint32_t o_block, o_smem;
};
template <class WU, class WUX, class SP, class SPX, class O, class OX>
prefill_entries<WU, WUX, SP, SPX, O, OX> entries_of(const char *name, WU wu, WUX wux, uint32_t wb, uint32_t ws, SP sp, SPX spx, uint32_t sb,
                                                    uint32_t ss, O o, OX ox, uint32_t ob, uint32_t os) {
    return { name, wu, wux, wb, ws, sp, spx, sb, ss, o, ox, ob, os };
}

/* ext: through the _ext entries, with the case's extras. chunk range [begin, end) of every sequence; end 0: all. */
template <class E>
void run_prefill(emu::bench &b, const prefill_case &c, prefill_data &d, const E &e, bool ext, uint32_t begin = 0, uint32_t end = 0) {
    using P = prefill_case;
    const uint32_t all = (c.longest() + P::C - 1) / P::C, grid = std::max(1u, end ? std::min(all, end) - begin : all), D = P::D;
    const gdn_bf16 *const q = d.q->p + c.shift, *const k = d.k->p + c.shift, *const v = d.v->p + c.shift;
    const float *const gate = d.gb->p, *const beta = d.gb->p + c.nv;
    const int32_t *const cu = c.packed ? d.cu->p : nullptr;
    float *const ckpt = c.ckpt_every ? d.ckpt->p : nullptr;
    const uint64_t *const in = d.in_tab->p, *const out = d.out_tab->p;
    const uint8_t *const fresh = c.fresh.empty() ? nullptr : d.fresh->p;
    const uint32_t len = c.longest(), n = c.batch();
    auto wu = [&] {
        if (ext)
            e.wu_ext(k, v, gate, beta, d.W->p, d.U->p, d.gc->p, n, len, all, c.nk, c.nv, D, D, c.qk_stride(), c.v_stride(), c.gb_stride(),
                     cu, nullptr, c.packed, in, out, fresh, ckpt, c.ckpt_every, c.scale, begin, end, 0);
        else
            e.wu(k, v, gate, beta, d.W->p, d.U->p, d.gc->p, n, len, all, c.nk, c.nv, D, D, c.qk_stride(), c.v_stride(), c.gb_stride(), cu,
                 nullptr, c.packed);
    };
    auto spine = [&] {
        if (ext)
            e.spine_ext(nullptr, d.W->p, d.U->p, k, gate, d.gc->p, d.S->p, d.uc->p, n, len, all, c.nk, c.nv, D, D, c.qk_stride(),
                        c.gb_stride(), 0, cu, nullptr, c.packed, in, out, fresh, ckpt, c.ckpt_every, c.scale, begin, end, 0);
        else
            e.spine(d.state->p, d.W->p, d.U->p, k, gate, d.gc->p, d.S->p, d.uc->p, n, len, all, c.nk, c.nv, D, D, c.qk_stride(),
                    c.gb_stride(), 0, cu, nullptr, c.packed);
    };
    auto fwd_o = [&] {
        if (ext)
            e.fwd_o_ext(q, k, gate, d.gc->p, d.S->p, d.uc->p, d.out->p, n, len, all, c.nk, c.nv, D, D, c.qk_stride(), c.gb_stride(), cu,
                        nullptr, c.packed, in, out, fresh, ckpt, c.ckpt_every, c.scale, begin, end, 0);
        else
            e.fwd_o(q, k, gate, d.gc->p, d.S->p, d.uc->p, d.out->p, n, len, all, c.nk, c.nv, D, D, c.qk_stride(), c.gb_stride(), cu,
                    nullptr, c.packed);
    };
    b.run("recompute_wu", { grid, c.nv, n }, e.wu_block, e.wu_smem, { *d.W, *d.U, *d.gc }, wu);
    if (ext && (c.separate || c.ckpt_every))
        b.run(e.name, { c.nv, n }, e.spine_block, e.spine_smem, { *d.S, *d.uc, *d.state, *d.state_out, *d.ckpt }, spine);
    else
        b.run(e.name, { c.nv, n }, e.spine_block, e.spine_smem, { *d.S, *d.uc, *d.state }, spine);
    b.run("chunk_fwd_o", { grid, c.nv, n }, e.o_block, e.o_smem, { *d.out }, fwd_o);
}

/* The bounds of the whole contract pipeline. */
inline void check_prefill(emu::bench &b, prefill_data &d, const prefill_case &c, bool ext) {
    check_written(b, "output", d.out->p, d.want_out, 3.5e-3, 0.05);
    check_written(b, "state", ext ? d.state_out->p : d.state->p, d.want_state, 2.5e-3, 0.05);
    if (c.ckpt_every) check_written(b, "checkpoints", d.ckpt->p, d.want_ckpt, 2.5e-3, 0.05);
}
