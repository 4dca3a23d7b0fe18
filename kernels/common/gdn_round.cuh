/* gdn_round.cuh - one launch a round of speculation: the accepted rows of the round before go onto the state, which is written, and up to
 * four rows are verified from it, which leave a stash. gdn_fold.cuh's operations, then gdn_step.cuh's, in their order: their bytes. A state
 * is read once, and written where a row was accepted. Heads of 128.
 *
 * A block takes part after part of all heads, COLUMNS value columns each; the next part's state is on its way into shared memory while it
 * computes, each thread's elements to a place that no other thread looks at. Sums of four are made where the state is and change hands
 * through shared memory. A quad of lanes has the four rows of a column: it adds the sums up and makes vn, so that no warp waits for another
 * one between a barrier before and one behind. One thread finds out where the part after the next one is. */
#pragma once
#include "gdn_round_rows.cuh"

template <uint32_t COLUMNS, uint32_t GROUPS> struct gdn_round_of {
    typedef gdn_round_rows<COLUMNS, GROUPS> rows_of;
    typedef gdn_round_smem<COLUMNS, GROUPS> smem;
    typedef gdn_round_state<COLUMNS, GROUPS> part;
    enum : uint32_t { THREADS = part::THREADS };

    /* A thread's row and column, of those that add up. */
    static GDN_METHOD uint32_t own_row() { return threadIdx.x / COLUMNS; }
    static GDN_METHOD uint32_t own_column() { return threadIdx.x % COLUMNS; }

    /* weight[t]: what row t takes of rows 0, 1, 2, and of hk; by the last warp. */
    static GDN_METHOD void weigh(smem &m) {
        const uint32_t t = gdn_lane() / 4, s = gdn_lane() % 4;
        if (t >= GDN_ROUND_ROWS || (s >= t && s != 3)) return;
        float w = s == 3 ? m.g[0] : s + 1 < t ? m.g[s + 1] : 1.0f;
        GDN_NO_UNROLL
        for (uint32_t e = s == 3 ? 1 : s + 2; e < t; e++) w *= m.g[e];
        m.weight[t][s] = s == 3 ? w : w * gdn_step_join<GDN_STEP_DIM>(m.dots[t * (t - 1) / 2 + s]);
    }
    /* vn of a column, all rows: a row's c takes each earlier vn as soon as that is there. */
    static GDN_METHOD void values(smem &m, const gdn_round &o, const gdn_round_task &task) {
        const uint32_t i = threadIdx.x;
        float c[GDN_ROUND_ROWS]; /* then vn */
        GDN_UNROLL
        for (uint32_t t = 0; t < GDN_ROUND_ROWS; t++) c[t] = t ? m.weight[t][3] * m.hk[t][i] : m.hk[t][i];
        GDN_UNROLL
        for (uint32_t s = 0; s < GDN_ROUND_ROWS; s++) {
            c[s] = (m.vn[s][i] - m.g[s] * c[s]) * m.b[s];
            GDN_UNROLL
            for (uint32_t t = s + 1; t < GDN_ROUND_ROWS; t++) c[t] += m.weight[t][s] * c[s];
        }
        GDN_UNROLL
        for (uint32_t t = 0; t < GDN_ROUND_ROWS; t++) m.vn[t][i] = c[t];
        (void)o, (void)task;
    }
    static GDN_METHOD void stash_values(const smem &m, const gdn_round &o, const gdn_round_task &task) {
        const uint32_t t = own_row(), column = own_column();
        if (t < task.rows)
            gdn_stash_of(o.stash, task.id, o.pitch, o.a.nv).vn[(t * o.a.nv + task.head) * GDN_STASH_DIM + task.slice * COLUMNS + column] =
                m.vn[t][column];
    }
    /* What is not there has been zero all along. */
    static GDN_METHOD void outputs(const smem &m, const gdn_round &o, const gdn_round_task &task) {
        const uint32_t t = own_row(), column = own_column();
        gdn_bf16 *const to = o.a.out + ((task.row + t) * o.a.nv + task.head) * GDN_STEP_DIM + task.slice * COLUMNS + column;
        if (t < task.rows) *to = gdn_to_bf16(o.a.scale * part::total(m.sums[t], column));
        if (t < task.zero) *to = gdn_bf16 { 0 };
    }

    static GDN_METHOD void one(smem &m, const gdn_round &o, uint32_t n) {
        const gdn_round_task &t = m.task[n % GDN_ROUND_TASKS], &next = m.task[(n + 1) % GDN_ROUND_TASKS];
        const bool finds = rows_of::finds();
        part state;
        gdn_round_words words = {};
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
        if (finds) words = gdn_round_ask(o, m.at); /* on their way while sums are added up */
        gdn_sync_block();
        if (own_row() < t.rows) m.hk[own_row()][own_column()] = part::total(m.sums[own_row()], own_column());
        if (threadIdx.x >= THREADS - 32) weigh(m);
        if (next.there) rows_of::send(m, o, next);
        gdn_cp_async_commit();
        if (finds) gdn_round_find<COLUMNS>(m.task[(n + 2) % GDN_ROUND_TASKS], o, m.at, words);
        gdn_sync_block();
        if (threadIdx.x < COLUMNS) values(m, o, t);
        gdn_sync_block();
        stash_values(m, o, t);
        state.steps(m, t.rows);
        gdn_sync_block();
        outputs(m, o, t);
    }

    static GDN_METHOD void run(smem &m, const gdn_round &o) {
        if (rows_of::finds()) {
            m.at = gdn_round_first<COLUMNS>(o);
            gdn_round_at second = m.at;
            gdn_round_next(second, o);
            const gdn_round_words a = gdn_round_ask(o, m.at), b = gdn_round_ask(o, second);
            gdn_round_find<COLUMNS>(m.task[0], o, m.at, a);
            gdn_round_find<COLUMNS>(m.task[1], o, m.at, b);
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
