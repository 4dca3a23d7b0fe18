/* gdn_round.cuh - one launch a round of speculation: the accepted rows of the round before go onto the state, which is written, and up to
 * four rows are verified from it, which leave a stash. gdn_fold.cuh's operations, then gdn_step.cuh's, in their order: their bytes. A state
 * is read once, and written where a row was accepted. Heads of 128.
 *
 * A block takes part after part of all heads, COLUMNS value columns each; the next part's state is on its way into shared memory while it
 * computes, each thread's elements to a place that no other thread looks at. Sums of four are made where the state is and change hands
 * through shared memory, to one warp, which adds them up and makes vn, while another one finds out where the part after the next one is.
 * Both are other warps each time, so that all schedulers get their share of that. */
#pragma once
#include "gdn_round_rows.cuh"

template <uint32_t COLUMNS, uint32_t GROUPS> struct gdn_round_of {
    typedef gdn_round_rows<COLUMNS, GROUPS> rows_of;
    typedef gdn_round_smem<COLUMNS, GROUPS> smem;
    typedef gdn_round_state<COLUMNS, GROUPS> part;
    enum : uint32_t { WARPS = part::THREADS / 32 };
    static GDN_METHOD bool is_turn(uint32_t turn) { return threadIdx.x / 32 == turn % WARPS; }
    static GDN_METHOD bool finds(uint32_t turn) { return is_turn(turn + 2) && gdn_lane() == 0; }

    /* A lane's row, and its four columns, of the warp that adds up. */
    static GDN_METHOD uint32_t own_row() { return gdn_lane() / (COLUMNS / 4); }
    static GDN_METHOD uint32_t own_columns() { return gdn_lane() % (COLUMNS / 4) * 4; }

    /* vn, to m and to the stash: gdn_step.cuh's sums and products, left to right. Rows that are not there take whatever there is. */
    static GDN_METHOD void values(smem &m, const gdn_round &o, const gdn_round_task &task) {
        const uint32_t t = own_row(), i = gdn_lane();
        if (t < task.rows) gdn_st16f(m.hk[t] + own_columns(), part::total(m.sums[t], own_columns()));
        gdn_sync_warp();
        if (i >= COLUMNS) return;
        const float4 g = gdn_ld16f(m.g), b = gdn_ld16f(m.b);
        float dot[6];
        GDN_UNROLL
        for (uint32_t j = 0; j < 6; j++) dot[j] = gdn_step_join<GDN_STEP_DIM>(m.dots[j]);
        const float gg = g.y * g.z, lead2 = g.x * g.y, lead3 = lead2 * g.z;
        const float h0 = m.hk[0][i], h1 = m.hk[1][i], h2 = m.hk[2][i], h3 = m.hk[3][i];
        const float v0 = (m.vn[0][i] - g.x * h0) * b.x;
        const float v1 = (m.vn[1][i] - g.y * (g.x * h1 + dot[0] * v0)) * b.y;
        const float v2 = (m.vn[2][i] - g.z * (lead2 * h2 + (g.y * dot[1]) * v0 + dot[2] * v1)) * b.z;
        const float v3 = (m.vn[3][i] - g.w * (lead3 * h3 + (gg * dot[3]) * v0 + (g.z * dot[4]) * v1 + dot[5] * v2)) * b.w;
        m.vn[0][i] = v0, m.vn[1][i] = v1, m.vn[2][i] = v2, m.vn[3][i] = v3;
        float *const to = gdn_stash_of(o.stash, task.id, o.pitch, o.a.nv).vn + task.head * GDN_STASH_DIM + task.slice * COLUMNS + i;
        const uint32_t line = o.a.nv * GDN_STASH_DIM;
        if (task.rows > 0) to[0] = v0;
        if (task.rows > 1) to[line] = v1;
        if (task.rows > 2) to[2 * line] = v2;
        if (task.rows > 3) to[3 * line] = v3;
    }
    /* Of padding: zeros. */
    static GDN_METHOD void outputs(const smem &m, const gdn_round &o, const gdn_round_task &task) {
        const uint32_t t = own_row();
        gdn_bf16 *const to = o.a.out + ((task.row + t) * o.a.nv + task.head) * GDN_STEP_DIM + task.slice * COLUMNS + own_columns();
        uint2 x = { 0, 0 };
        if (t < task.rows) {
            const float4 sum = part::total(m.sums[t], own_columns());
            x = uint2 { gdn_pack_bf16(o.a.scale * sum.x, o.a.scale * sum.y), gdn_pack_bf16(o.a.scale * sum.z, o.a.scale * sum.w) };
        } else if (t >= task.zero) {
            return;
        }
        if ((uint64_t)to % 8 == 0)
            gdn_st8(to, x);
        else
            to[0].bits = (uint16_t)x.x, to[1].bits = (uint16_t)(x.x >> 16), to[2].bits = (uint16_t)x.y, to[3].bits = (uint16_t)(x.y >> 16);
    }

    static GDN_METHOD void one(smem &m, const gdn_round &o, uint32_t n) {
        const gdn_round_task &t = m.task[n % GDN_ROUND_TASKS], &next = m.task[(n + 1) % GDN_ROUND_TASKS];
        const uint32_t turn = n % WARPS;
        part state;
        gdn_cp_async_wait<0>();
        state.take(m.state);
        rows_of::put(m);
        if (next.there) part::send(m.state, next.in, next.slice);
        gdn_sync_block();
#ifdef GDN_QK_L2NORM
        rows_of::normalise(m, t.rows);
#endif
        state.fold(m, t.fold);
        if (t.out) state.store(t.out, t.slice);
        rows_of::dots(m);
        state.sums_of_keys(m, t.rows);
        rows_of::stash_keys(m, o, t);
        gdn_sync_block();
        if (is_turn(turn)) values(m, o, t);
        if (next.there) rows_of::send(m, o, next);
        if (finds(turn)) {
            gdn_round_find<COLUMNS>(m.task[(n + 2) % GDN_ROUND_TASKS], o, m.at, m.words[0]);
            gdn_round_ask(m.words[0], o, m.at);
        }
        gdn_cp_async_commit();
        gdn_sync_block();
        state.steps(m, t.rows);
        gdn_sync_block();
        if (is_turn(turn + 1)) outputs(m, o, t);
    }

    static GDN_METHOD void run(smem &m, const gdn_round &o) {
        if (finds(0)) {
            gdn_round_at at = gdn_round_first<COLUMNS>(o);
            m.at = at;
            gdn_round_ask(m.words[0], o, at);
            gdn_round_next(at, o);
            gdn_round_ask(m.words[1], o, at);
            gdn_cp_async_commit();
            gdn_cp_async_wait<0>();
            gdn_round_find<COLUMNS>(m.task[0], o, m.at, m.words[0]);
            gdn_round_find<COLUMNS>(m.task[1], o, m.at, m.words[1]);
            gdn_round_ask(m.words[0], o, m.at);
        }
        if (!o.by_sequence && blockIdx.x == 0 && threadIdx.x == 0) *o.engaged = 1;
        gdn_sync_block();
        if (!m.task[0].there) return;
        part::send(m.state, m.task[0].in, m.task[0].slice);
        rows_of::send(m, o, m.task[0]);
        gdn_cp_async_commit();
        GDN_NO_UNROLL
        for (uint32_t n = 0; m.task[n % GDN_ROUND_TASKS].there; n++) one(m, o, n);
    }
};
