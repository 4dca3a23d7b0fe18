/* gdn_round_stay.cuh - gdn_round.cuh's operations by blocks that have whole heads, as gdn_step_stay.cuh has them: where there are enough
 * heads. States [K][V] only; sm_90 and later.
 *
 * A leg folds what it has of a head before anything else, and writes it; what the round before left comes to shared memory during the head
 * before, the leg's own k by itself, a row of vn by each leg. */
#pragma once
#include "gdn_round_rows.cuh"
#include "gdn_step_stay.cuh"

/* Of a head, by the round before. */
struct __align__(16) gdn_round_left {
    float k[GDN_STAY_ROWS][GDN_STEP_DIM], vn[GDN_STAY_ROWS][GDN_STEP_DIM], g[GDN_STAY_ROWS];
};
/* What a task has beside gdn_stay_task's. */
struct gdn_round_settled {
    float *out; /* where the state goes with the accepted rows on it; NULL: it stays */
    uint32_t fold;
};
struct __align__(16) gdn_round_stay_smem {
    gdn_stay_smem stay;
    gdn_round_left left[2]; /* by gdn_stay_task.two */
    gdn_round_settled settled[4];
    gdn_round_at at;          /* the first head that is not in task */
    gdn_round_words words[2]; /* of that, and at the start of the second one */
};

struct gdn_round_more {
    gdn_round_stay_smem &m;
    const gdn_round &o;

    /* The block's n-th head, by one thread. */
    GDN_METHOD void found(uint32_t n, const gdn_round_words &w) const {
        gdn_round_task r;
        gdn_stay_task t = {};
        gdn_round_find<GDN_STEP_DIM>(r, o, m.at, w);
        if (n > 0) gdn_stay_follow(t, m.stay.task[(n + 3) % 4]);
        if (r.there) {
            t.in = r.in, t.row = r.row, t.head = r.head, t.id = r.id, t.key_head = r.key_head;
            t.rows = r.zero + r.rows;
            t.first_of_key_head = r.keys;
            gdn_stay_rows_at(t, o.a);
            t.kind = r.zero || !(r.rows || r.out) ? GDN_STAY_NONE
                     : !r.in                      ? GDN_STAY_ZEROS
                     : gdn_aligned16(r.in)        ? GDN_STAY_BULK
                                                  : GDN_STAY_NARROW;
        }
        m.settled[n % 4] = gdn_round_settled { r.out, r.fold };
        m.stay.task[n % 4] = t;
    }
    GDN_METHOD void ask() const {
        gdn_round_ask(m.words[0], o, m.at);
        gdn_cp_async_commit();
    }
    GDN_METHOD void find_first() const {
        gdn_round_at at = gdn_round_first<GDN_STEP_DIM>(o);
        m.at = at;
        gdn_round_ask(m.words[0], o, at);
        gdn_round_next(at, o);
        gdn_round_ask(m.words[1], o, at);
        gdn_cp_async_commit();
        gdn_cp_async_wait<0>();
        found(0, m.words[0]);
    }
    GDN_METHOD void find_second() const {
        found(1, m.words[1]);
        ask();
    }
    GDN_METHOD void find(uint32_t n) const {
        gdn_cp_async_wait<0>();
        found(n, m.words[0]);
        ask();
    }

    /* A half of the blocks begins later: what one of two on a multiprocessor asks of memory comes while the other computes. */
    GDN_METHOD void late() const { gdn_pause(4000); }

    /* Sends for what the round before left of the n-th head. */
    GDN_METHOD void send(const gdn_stay_task &t, uint32_t n, const gdn_stay_lane &l) const {
        const uint32_t fold = m.settled[n % 4].fold, r = l.lane / 8, at = l.first + l.lane % 8 * 4;
        if (t.kind <= GDN_STAY_NONE || fold == 0) return;
        const gdn_stash s = gdn_stash_of(o.pending, t.id, o.pitch, o.a.nv);
        gdn_round_left &to = m.left[t.two];
        if (r < fold) gdn_round_send4(to.k[r] + at, s.sk + (r * o.a.nk + t.key_head) * GDN_STASH_DIM + at);
        if (l.leg < fold) gdn_round_send4(to.vn[l.leg] + l.column, s.vn + (l.leg * o.a.nv + t.head) * GDN_STASH_DIM + l.column);
        if (l.leg == 2 && l.lane < fold) gdn_cp_async4(to.g + l.lane, s.g + l.lane * o.a.nv + t.head);
        gdn_cp_async_commit();
    }
    /* Before a barrier; the other legs have waited for their rows. */
    GDN_METHOD void landed(uint32_t leg) const {
        if (leg == GDN_STAY_LEGS - 1) gdn_cp_async_wait<0>();
    }
    /* The state goes out by way of shared memory and by the copy engine, so that no thread waits for memory. */
    GDN_METHOD bool leaves(uint32_t n) const {
        const float *const out = m.settled[n % 4].out;
        return out && gdn_aligned16(out);
    }
    GDN_METHOD void left() const {
        if (gdn_lane() == 0) gdn_bulk_wait_read<0>();
    }
    /* The accepted rows of the round before onto the leg's part of the n-th head. */
    GDN_METHOD void fold(gdn_stay_four (&s)[GDN_STAY_GROUPS], float *state, const gdn_stay_task &t, uint32_t n,
                         const gdn_stay_lane &l) const {
        const gdn_round_left &from = m.left[t.two];
        const uint32_t rows = m.settled[n % 4].fold, part = l.leg * GDN_STAY_PART;
        float *const out = m.settled[n % 4].out;
        if (!out) return;
        GDN_NO_UNROLL
        for (uint32_t r = 0; r < rows; r++) {
            const float4 vn = gdn_ld16f(from.vn[r] + l.column);
            const float g = from.g[r];
            GDN_UNROLL
            for (uint32_t i = 0; i < GDN_STAY_GROUPS; i++) s[i].step(g, gdn_ld16f_turn(from.k[r] + l.first + 4 * i), vn);
        }
        if (!leaves(n)) {
            float *const p = gdn_opaque(out + part + l.column);
            GDN_UNROLL
            for (uint32_t j = 0; j < GDN_STAY_LEG; j++) gdn_part_put(p + j * GDN_STEP_DIM, false, s[j / 4].s[j % 4]);
            return;
        }
        GDN_UNROLL
        for (uint32_t j = 0; j < GDN_STAY_LEG; j++) gdn_st16f(state + part + l.column + j * GDN_STEP_DIM, s[j / 4].s[j % 4]);
        gdn_fence_async();
        gdn_sync_warp();
        if (l.lane == 0) {
            gdn_bulk_store(out + part, state + part, GDN_STAY_PART * 4);
            gdn_bulk_commit();
        }
    }
};

/* All heads of all sequences, by any grid of blocks of 128 threads. state: 64 KiB of shared memory. */
GDN_DEVICE void gdn_round_stay_run(gdn_round_stay_smem &m, float *state, const gdn_round &o) {
    if (!o.by_sequence && blockIdx.x == 0 && threadIdx.x == 0) *o.engaged = 1;
    gdn_stay_run(m.stay, state, gdn_stay { o.a, gdn_rule_ext {}, nullptr, o.stash, o.pitch, o.batch, nullptr, nullptr, nullptr },
                 gdn_round_more { m, o });
}
