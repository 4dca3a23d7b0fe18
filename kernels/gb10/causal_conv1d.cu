/* causal_conv1d.cu - depthwise causal convolution over time, alone (causal_conv1d) or with SiLU, split and L2 norm of q and k
 * heads in the same pass (conv_silu_split_l2norm). bf16 rows, f32 arithmetic, one rounding.
 *
 *     y[t][c] = act( bias[c] + sum_{j<width} weight[c][j] * x[t-(width-1)+j][c] )      q, k heads: y / sqrt(sum y^2 + 1e-6)
 *
 * Grid and block: gdn_geometry.h. A lane has eight channels and walks up to GDN_CONV_TOKENS tokens of one sequence with the last
 * rows in registers, so x is read once plus a halo of width-1 rows a tile. Reads x, weight, bias, state, slots, fresh, cu_seqlens,
 * accepted; writes the outputs and the state (gdn_conv.cuh); padding rows are zeroed and read nothing. Shared memory, 38 KiB, holds
 * the tile's rows of x in flight; each thread uses its own words only.
 *   Order of additions: bias, then the taps, oldest first, every product rounded before it is added. With bf16 weights a product
 *   is exact in f32 (where it is 0 or in [2^-133, 2^128)), and a fused multiply-add gives the same bytes.
 *   Sum of squares: ascending inside a lane, then a butterfly over the lanes of the head, far to near.
 * The bytes do not depend on alignment, strides, or what else is in the batch. Width 4 with
 * aligned rows keeps its window in registers and moves 16 bytes at a time; anything else goes element by element and reads each
 * row `width` times. */
#include "gdn_conv.cuh"

/* bf16 weights and no bias, known at compile time; or what the arguments say. */
enum { W_BF16 = 0, W_ANY = 1 };
/* Lanes of a normalised head: known to be 16 (128 channels), none, or by the lane. */
enum { HEAD_NONE = 0, HEAD_16 = 16, HEAD_ANY = 1 };
enum { BATCH = 4 }; /* rows that are waited for together */
static_assert(GDN_CONV_TOKENS % BATCH == 0 && GDN_CONV_TOKENS >= 7, "only a first tile reaches back into the state");

/* ---- arithmetic of one row, eight channels ---- */
template <int W> GDN_DEVICE float tap(float acc, float w, float x, bool f32) {
    if (W == W_BF16 || !f32) return gdn_fma(w, x, acc);
    return acc + w * x;
}

template <int HEAD> GDN_DEVICE void normalise(float (&y)[8], const gdn_conv_lane &l) {
    if (HEAD == HEAD_NONE || l.head == 0) return;
    float sum = 0;
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) sum = gdn_fma(y[i], y[i], sum);
    GDN_UNROLL
    for (uint32_t d = 16; d > 0; d /= 2)
        if (HEAD == HEAD_16 ? d < 16 : d < l.head) sum += __shfl_xor_sync(GDN_FULL_MASK, sum, (int)d);
    const float r = l.norm ? gdn_rsqrt(sum + 1e-6f) : 1.0f;
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) y[i] = y[i] * r;
}

template <bool VEC, int HEAD> GDN_DEVICE void finish(float (&y)[8], const gdn_conv &a, const gdn_conv_lane &l, gdn_bf16 *out) {
    if (a.silu) {
        GDN_UNROLL
        for (uint32_t i = 0; i < 8; i++) y[i] = gdn_silu_fast(y[i]);
    }
    normalise<HEAD>(y, l);
    gdn_store8<VEC>(out, l.n, gdn_pack8(y));
}

/* ---- width 4, everything aligned ---- */
struct taps {
    float w[4][8], bias[8];
};

template <int W> GDN_DEVICE void load_taps(taps &k, const gdn_conv &a, const gdn_conv_lane &l) {
    const uint64_t at = (uint64_t)l.c0 * 4;
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        GDN_UNROLL
        for (uint32_t j = 0; j < 4; j++) k.w[j][i] = 0;
        k.bias[i] = W == W_ANY && a.bias && l.n ? gdn_weight(a.bias, a.weight_f32, l.c0 + i) : 0;
    }
    if (l.n == 0) return;
    if (W == W_BF16 || !a.weight_f32) {
        GDN_UNROLL
        for (uint32_t i = 0; i < 8; i += 2) { /* two channels, four taps each */
            float f[8];
            gdn_unpack8(f, gdn_ld16_ro(static_cast<const gdn_bf16 *>(a.weight) + at + 4 * i));
            GDN_UNROLL
            for (uint32_t j = 0; j < 8; j++) k.w[j % 4][i + j / 4] = f[j];
        }
    } else {
        GDN_UNROLL
        for (uint32_t i = 0; i < 8; i++) {
            const float4 f = gdn_ld16f(static_cast<const float *>(a.weight) + at + 4 * i);
            k.w[0][i] = f.x;
            k.w[1][i] = f.y;
            k.w[2][i] = f.z;
            k.w[3][i] = f.w;
        }
    }
}

/* Asks for all rows of the tile at once, BATCH of them a group, into words that only this thread reads; then the three rows before
 * token t0. A first tile also leaves the new state behind. */
GDN_DEVICE void fetch(uint4 *tile, uint4 (&win)[3], const gdn_conv &a, const gdn_conv_seq &s, const gdn_conv_lane &l, uint64_t t0,
                      uint32_t rows) {
    const gdn_bf16 *const x = a.x + (s.row0 + t0) * a.x_stride + l.c0, *row = x;
    const uint32_t bytes = l.n ? 16 : 0; /* lanes without channels compute on zeros */
    GDN_UNROLL
    for (uint32_t r = 0; r < GDN_CONV_TOKENS; r++, row += a.x_stride) {
        if (r < rows) gdn_cp_async16(tile + r * GDN_CONV_BLOCK, row, bytes);
        if (r % BATCH == BATCH - 1) gdn_cp_async_commit();
    }
    if (t0) {
        GDN_UNROLL
        for (uint32_t j = 0; j < 3; j++) win[j] = gdn_load8<true, true>(x + ((int64_t)j - 3) * a.x_stride, l.n);
        return;
    }
    const bool words = s.state && a.state_len == 3 && gdn_conv_whole_words(a, s, l);
    GDN_UNROLL
    for (uint32_t j = 0; j < 3; j++) win[j] = words ? uint4 { 0, 0, 0, 0 } : gdn_conv_column(a, s, l, j);
    if (words && !s.fresh) gdn_conv_read3(win, s, l);
    if (a.keep_rows) gdn_cp_async_wait<0>();
    gdn_conv_write4(a, win, tile, s, l);
}

/* One row: h holds the three before it, and moves on. */
template <int W, int HEAD>
GDN_DEVICE void row4(float (&h)[3][8], uint4 v, const taps &k, const gdn_conv &a, const gdn_conv_lane &l, gdn_bf16 *out) {
    float x[8], y[8];
    gdn_unpack8(x, v);
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        y[i] = tap<W>(k.bias[i], k.w[0][i], h[0][i], a.weight_f32);
        y[i] = tap<W>(y[i], k.w[1][i], h[1][i], a.weight_f32);
        y[i] = tap<W>(y[i], k.w[2][i], h[2][i], a.weight_f32);
        y[i] = tap<W>(y[i], k.w[3][i], x[i], a.weight_f32);
        h[0][i] = h[1][i];
        h[1][i] = h[2][i];
        h[2][i] = x[i];
    }
    finish<true, HEAD>(y, a, l, out);
}

/* The tile from its fetched rows. out: its first row. */
template <int W, int HEAD>
GDN_DEVICE void conv4(const uint4 *tile, const uint4 (&win)[3], const gdn_conv &a, const gdn_conv_lane &l, gdn_bf16 *out, uint32_t rows) {
    taps k;
    float h[3][8];
    load_taps<W>(k, a, l);
    GDN_UNROLL
    for (uint32_t j = 0; j < 3; j++) gdn_unpack8(h[j], win[j]);
    GDN_NO_UNROLL
    for (uint32_t left = rows; left;) {
        gdn_cp_async_commit(); /* an empty group, so that the number of later groups is the same in every round */
        gdn_cp_async_wait<GDN_CONV_TOKENS / BATCH>();
        if (left >= BATCH) {
            GDN_UNROLL
            for (uint32_t r = 0; r < BATCH; r++, tile += GDN_CONV_BLOCK, out += l.out_stride) row4<W, HEAD>(h, *tile, k, a, l, out);
            left -= BATCH;
        } else {
            GDN_NO_UNROLL
            for (; left; left--, tile += GDN_CONV_BLOCK, out += l.out_stride) row4<W, HEAD>(h, *tile, k, a, l, out);
        }
    }
}

/* ---- any width ---- */
template <int HEAD>
GDN_DEVICE void conv_any(const gdn_conv &a, const gdn_conv_seq &s, const gdn_conv_lane &l, gdn_bf16 *out, uint64_t t0, uint32_t rows) {
    const uint32_t cols = a.width - 1;
    GDN_NO_UNROLL
    for (uint32_t t = 0; t < rows; t++) {
        float y[8];
        GDN_UNROLL
        for (uint32_t i = 0; i < 8; i++) y[i] = a.bias && i < l.n ? gdn_weight(a.bias, a.weight_f32, l.c0 + i) : 0;
        GDN_NO_UNROLL
        for (uint32_t j = 0; j < a.width; j++) {
            const uint64_t from = t0 + t + j; /* of window ++ x */
            float x[8];
            gdn_unpack8(x, from < cols ? gdn_conv_column(a, s, l, (uint32_t)from)
                                       : gdn_load8<false, true>(a.x + (s.row0 + from - cols) * a.x_stride + l.c0, l.n));
            GDN_UNROLL
            for (uint32_t i = 0; i < 8; i++)
                if (i < l.n)
                    y[i] = tap<W_ANY>(y[i], gdn_weight(a.weight, a.weight_f32, (uint64_t)(l.c0 + i) * a.width + j), x[i], a.weight_f32);
        }
        finish<false, HEAD>(y, a, l, out + t * l.out_stride);
    }
    if (t0 == 0) gdn_conv_write_state(a, s, l);
}

/* ---- one tile ---- */
template <bool FUSED> GDN_DEVICE void conv_tile(const gdn_conv &a, const gdn_conv_lane &l, uint64_t index, bool aligned, uint4 *tile) {
    const int any = FUSED ? HEAD_ANY : HEAD_NONE;
    gdn_conv_seq s;
    uint64_t t0;
    if (!gdn_conv_seq_of(a, index, &s, &t0)) return;
    const uint32_t rows = s.len - t0 < GDN_CONV_TOKENS ? (uint32_t)(s.len - t0) : GDN_CONV_TOKENS;
    gdn_bf16 *const out = l.out + (s.row0 + t0) * l.out_stride;
    if (s.padding) {
        GDN_NO_UNROLL
        for (uint32_t t = 0; t < rows; t++) gdn_store8<false>(out + t * l.out_stride, l.n, uint4 { 0, 0, 0, 0 });
        return;
    }
    if (a.width != 4 || !aligned) {
        conv_any<any>(a, s, l, out, t0, rows);
        return;
    }
    uint4 win[3];
    fetch(tile, win, a, s, l, t0, rows);
    if (a.weight_f32 || a.bias || (l.head && l.head != 16))
        conv4<W_ANY, any>(tile, win, a, l, out, rows);
    else if (FUSED && l.head)
        conv4<W_BF16, HEAD_16>(tile, win, a, l, out, rows);
    else
        conv4<W_BF16, HEAD_NONE>(tile, win, a, l, out, rows);
}

GDN_KERNEL(GDN_CONV_BLOCK, 4)
causal_conv1d(const gdn_bf16 *x, const void *weight, const void *bias, gdn_bf16 *state, const int32_t *slots, const uint8_t *fresh,
              gdn_bf16 *out, uint32_t tokens, uint32_t channels, uint32_t x_stride, uint32_t out_stride, uint32_t width, uint32_t state_len,
              uint32_t silu, const void *cu_seqlens, uint32_t batch, uint32_t seq_len, uint32_t cu64, const int32_t *accepted,
              uint32_t keep_rows, uint64_t slot_stride, uint32_t weight_f32) {
    gdn_begin();
    gdn_let_next();
    (void)tokens; /* the grid's */
    const gdn_conv a = { x,        weight, bias,      state, slots,   fresh,     cu_seqlens,     accepted,        slot_stride, channels,
                         x_stride, width,  state_len, batch, seq_len, cu64 != 0, keep_rows != 0, weight_f32 != 0, silu != 0 };
    const uint32_t blocks = GDN__CEIL_DIV(GDN_CONV1D_LANES(channels), GDN_CONV_BLOCK);
    const uint32_t i = blockIdx.x % blocks * GDN_CONV_BLOCK + threadIdx.x;
    gdn_conv_lane l = { out, out_stride, 0, 0, 0, false };
    if (i < GDN_CONV1D_LANES(channels)) {
        l.c0 = 8 * i;
        l.n = channels - l.c0 < 8 ? channels - l.c0 : 8;
        l.out += l.c0;
    }
    const bool aligned = gdn_aligned16(x) && gdn_aligned16(weight) && gdn_aligned16(out) && (channels | x_stride | out_stride) % 8 == 0;
    __shared__ uint4 tile[GDN_CONV_TOKENS + 3][GDN_CONV_BLOCK]; /* and three columns of the state */
    conv_tile<false>(a, l, blockIdx.x / blocks, aligned, &tile[0][threadIdx.x]);
}

GDN_KERNEL(GDN_CONV_BLOCK, 4)
conv_silu_split_l2norm(const gdn_bf16 *x, const void *weight, const void *bias, gdn_bf16 *state, const int32_t *slots, const uint8_t *fresh,
                       gdn_bf16 *out_q, gdn_bf16 *out_k, gdn_bf16 *out_v, uint32_t tokens, uint32_t channels, uint32_t x_stride,
                       uint32_t width, uint32_t state_len, const void *cu_seqlens, uint32_t batch, uint32_t seq_len, uint32_t cu64,
                       const int32_t *accepted, uint32_t keep_rows, uint64_t slot_stride, uint32_t weight_f32, uint32_t nk, uint32_t nv,
                       uint32_t k_dim, uint32_t v_dim, uint32_t q_stride, uint32_t k_stride, uint32_t v_stride) {
    gdn_begin();
    gdn_let_next();
    (void)tokens;
    const gdn_conv a = { x,        weight, bias,      state, slots,   fresh,     cu_seqlens,     accepted,        slot_stride, channels,
                         x_stride, width,  state_len, batch, seq_len, cu64 != 0, keep_rows != 0, weight_f32 != 0, true };
    const uint32_t each = GDN_CONV_HEAD_LANES(k_dim), qk = nk * each, qk_channels = nk * k_dim, v_channels = nv * v_dim;
    const uint32_t blocks = GDN__CEIL_DIV(GDN_CONV_FUSED_LANES(nk, k_dim, nv, v_dim), GDN_CONV_BLOCK);
    const uint32_t i = blockIdx.x % blocks * GDN_CONV_BLOCK + threadIdx.x;
    gdn_conv_lane l = { out_v, v_stride, 0, 0, (i & ~31u) < 2 * qk ? each : 0, i < 2 * qk };
    uint32_t c = 0, end = 0; /* channels of the lane's head, or of v */
    if (i < 2 * qk) {
        const uint32_t part = i >= qk, head = (i - part * qk) / each;
        c = (i - part * qk) % each * 8;
        end = k_dim;
        l.out = (part ? out_k : out_q) + head * k_dim;
        l.out_stride = part ? k_stride : q_stride;
        l.c0 = part * qk_channels + head * k_dim;
    } else {
        c = (i - 2 * qk) * 8;
        end = v_channels;
        l.c0 = 2 * qk_channels;
    }
    if (c < end) {
        l.n = end - c < 8 ? end - c : 8;
        l.c0 += c;
        l.out += c;
    }
    const bool aligned = gdn_aligned16(x) && gdn_aligned16(weight) && gdn_aligned16(out_q) && gdn_aligned16(out_k) &&
                         gdn_aligned16(out_v) && (x_stride | k_dim | v_channels | q_stride | k_stride | v_stride) % 8 == 0;
    __shared__ uint4 tile[GDN_CONV_TOKENS + 3][GDN_CONV_BLOCK]; /* and three columns of the state */
    conv_tile<true>(a, l, blockIdx.x / blocks, aligned, &tile[0][threadIdx.x]);
}
