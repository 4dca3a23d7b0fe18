/* call_overlap.c - what is written lies apart from all else, and every size ends within the address space. */
#include "call_regions.h"

static const uint64_t MOST = 1ull << 62; /* bytes that a pointer may stand for */

/* Does [at, at + n) hold a byte of r's rows? */
static bool hits(uint64_t at, uint64_t n, const gdn__region *r) {
    if (at >= r->base + r->bytes || at + n <= r->base) return false;
    if (at < r->base || r->rows == 1) return true;
    const uint64_t i = (at - r->base) / r->stride, row = r->base + i * r->stride;
    return at < row + r->width || (i + 1 < r->rows && row + r->stride < at + n);
}

/* A region's first and last row against all of the other's, both ways round: all there is where strides are the same. */
static bool row_hits(const gdn__region *a, const gdn__region *b) {
    return hits(a->base, a->width, b) || (a->rows > 1 && hits(a->base + a->bytes - a->width, a->width, b));
}

static bool overlap(const gdn__region *a, const gdn__region *b) {
    if (a->base >= b->base + b->bytes || b->base >= a->base + a->bytes) return false;
    if (a->is & b->is & GDN__STATES && a->width == b->width && a->stride == b->stride) {
        const uint64_t d = (a->base > b->base ? a->base - b->base : b->base - a->base) % a->stride;
        return d && (d < a->width || a->stride - d < a->width); /* 0: whole slots, and which ones, the lists say */
    }
    if ((a->is | b->is) & GDN__PACKED && a->base != b->base && (a->stride != b->stride || !(a->is & b->is & GDN__PACKED)))
        return false; /* where they meet depends on where the rows begin */
    return row_hits(a, b) || row_hits(b, a);
}

/* The one pair that an operation allows to be the same: gdn_op_norm.h. */
static bool may_be_same(uint32_t op, const gdn__region *a, const gdn__region *b) {
    return op == GDN_OP_NORM && a->ptr == GDN_NORM_P_X && b->ptr == GDN_NORM_P_OUT && a->base == b->base && a->rows == 1;
}

static gdn_status tell(const gdn__call *c, const gdn__region *written, const gdn__region *other, gdn_text *err) {
    const char *const a = c->op->ptr[written->ptr].name, *const b = c->op->ptr[other->ptr].name;
    return gdn__fail(err, GDN_E_ARG, "%s: the memory of '%s', which is written, and of '%s' overlaps", gdn__op_name(c->op->op), a, b);
}

gdn_status gdn__call_apart(const gdn__shape *s, const gdn__call *c, uint64_t workspace, gdn_text *err) {
    gdn__regions r;
    uint32_t written[GDN__MAX_PTR], n = 0;
    gdn__regions_of(s, c, workspace, &r);
    for (uint32_t i = 0; i < r.n; i++) {
        gdn__region *const x = &r.at[i];
        x->base = c->ptr[x->ptr];
        if (!x->base) x->bytes = 0; /* not given: nothing of it is met below */
        if (x->base + x->bytes < x->base)
            return gdn__fail(err, GDN_E_ARG, "%s: pointer '%s' and its %llu bytes reach past the address space", gdn__op_name(c->op->op),
                             c->op->ptr[x->ptr].name, (unsigned long long)x->bytes);
        if (x->is & GDN__WRITTEN && x->base) written[n++] = i;
    }
    for (uint32_t w = 0; w < n; w++) {
        const gdn__region *const a = &r.at[written[w]];
        for (uint32_t k = 0; k < r.n; k++) {
            const gdn__region *const b = &r.at[k];
            if (a == b || !overlap(a, b) || may_be_same(c->op->op, b, a)) continue;
            return tell(c, a, b, err);
        }
    }
    return GDN_OK;
}

gdn_status gdn__shape_reach(const gdn__shape *s, gdn_text *err) {
    const gdn__op *op = gdn__op_find(s->base.op);
    gdn__regions r;
    gdn__regions_of(s, NULL, 0, &r);
    for (uint32_t i = 0; i < r.n; i++)
        if (r.at[i].bytes > MOST)
            return gdn__fail(err, GDN_E_ARG, "%s: '%s' with these sizes and strides is more than 2^62 bytes", gdn__op_name(s->base.op),
                             op->ptr[r.at[i].ptr].name);
    return GDN_OK;
}
