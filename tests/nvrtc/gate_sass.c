/* gate_sass.c - counts machine instructions in a cubin without a disassembler: every instruction has 16 bytes, and the low 9 bits of
 * its first word tell which one it is, whatever its operands; LDG128 is an LDG whose size, bits 9 to 11 of the second word, is 16 bytes.
 * The table was read off a disassembler for sm_90a and sm_121f; the test calibrates the names that facts rest on with kernels whose counts
 * are known. */
#include "nvrtc_gate.h"
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint16_t code, size; /* size 0: any */
} table[] = {
    { "FADD", 0x021, 0 },       { "FMUL", 0x020, 0 },    { "FFMA", 0x023, 0 },    { "F2FP", 0x03e, 0 },    { "MUFU", 0x108, 0 },
    { "HMMA", 0x03c, 0 },       { "HGMMA", 0x1f0, 0 },   { "OMMA", 0x07f, 0 },    { "LDSM", 0x03b, 0 },    { "STSM", 0x044, 0 },
    { "LDGSTS", 0x1ae, 0 },     { "UBLKCP", 0x1ba, 0 },  { "UTMALDG", 0x1b4, 0 }, { "UTMASTG", 0x1b5, 0 }, { "LDG", 0x181, 0 },
    { "STG", 0x186, 0 },        { "LDS", 0x184, 0 },     { "STS", 0x188, 0 },     { "LDL", 0x183, 0 },     { "STL", 0x187, 0 },
    { "LDG128", 0x181, 6 },     { "SHFL", 0x189, 0 },    { "BAR", 0x11d, 0 },     { "SYNCS", 0x1b2, 0 },   { "SYNCS", 0x1a7, 0 },
    { "USETMAXREG", 0x1c8, 0 }, { "ACQBULK", 0x02e, 0 }, { "PREEXIT", 0x02d, 0 },
};
enum { INSTRUCTION = 16, N_TABLE = sizeof table / sizeof *table };

uint32_t gate_read_cubin(const void *cubin, size_t bytes, gate_code *out) {
    const unsigned char *base = cubin;
    Elf64_Ehdr h;
    uint32_t n = 0;
    if (bytes < sizeof h || memcmp(base, ELFMAG, SELFMAG) != 0) return 0;
    memcpy(&h, base, sizeof h);
    if (h.e_shentsize != sizeof(Elf64_Shdr) || h.e_shoff > bytes || (size_t)h.e_shnum * sizeof(Elf64_Shdr) > bytes - h.e_shoff ||
        h.e_shstrndx >= h.e_shnum)
        return 0;
    const unsigned char *sections = base + h.e_shoff;
    Elf64_Shdr names;
    memcpy(&names, sections + (size_t)h.e_shstrndx * sizeof names, sizeof names);
    if (names.sh_offset > bytes || names.sh_size > bytes - names.sh_offset) return 0;
    for (uint32_t i = 0; i < h.e_shnum && n < GATE_ENTRIES; i++) {
        Elf64_Shdr s;
        memcpy(&s, sections + (size_t)i * sizeof s, sizeof s);
        if (s.sh_name >= names.sh_size || s.sh_offset > bytes || s.sh_size > bytes - s.sh_offset) continue;
        const char *name = (const char *)base + names.sh_offset + s.sh_name;
        const size_t room = names.sh_size - s.sh_name, length = strnlen(name, room);
        if (length == room || strncmp(name, ".text.", 6) != 0 || length - 6 >= GATE_NAME) continue;
        memcpy(out[n].entry, name + 6, length - 6 + 1);
        out[n].text = base + s.sh_offset;
        out[n].bytes = s.sh_size;
        n++;
    }
    return n;
}

/* A name may stand for several codes. */
long gate_count(const gate_code *code, const char *name) {
    long count = -1;
    for (size_t t = 0; t < N_TABLE; t++) {
        if (strcmp(table[t].name, name) != 0) continue;
        if (count < 0) count = 0;
        for (size_t at = 0; at + INSTRUCTION <= code->bytes; at += INSTRUCTION) {
            uint64_t word[2];
            memcpy(word, code->text + at, sizeof word);
            count += (word[0] & 0x1ff) == table[t].code && (!table[t].size || (word[1] >> 9 & 7) == table[t].size);
        }
    }
    return count;
}

bool gate_waits_first(const gate_code *code) {
    enum { ACQBULK = 0x02e, LDG = 0x181, STRONG_GPU = 0x0f, ALWAYS = 7 };
    static const uint16_t touches[] = { 0x14d, 0x180, LDG,   0x185, 0x186, 0x18a, 0x18e, 0x1a3,
                                        0x1a6, 0x1a8, 0x1a9, 0x1ae, 0x1b4, 0x1b5, 0x1ba, 0x1bb };
    for (size_t at = 0; at + INSTRUCTION <= code->bytes; at += INSTRUCTION) {
        uint64_t word[2];
        memcpy(word, code->text + at, sizeof word);
        const uint64_t is = word[0] & 0x1ff;
        if (is == ACQBULK) return (word[0] >> 12 & 0xf) == ALWAYS;
        if (is == LDG && (word[1] >> 12 & 0x1f) == STRONG_GPU) continue;
        for (size_t i = 0; i < sizeof touches / sizeof *touches; i++)
            if (is == touches[i]) return false;
    }
    return false;
}

static bool fact_holds(const gate_code *code, const char *fact, char *why, size_t room) {
    char name[32];
    const size_t n = strcspn(fact, "<>=");
    if (n == 0 || n >= sizeof name || !fact[n]) {
        snprintf(why, room, "`%s` is no fact (NAME=n, NAME<=n, NAME>=n)", fact);
        return false;
    }
    memcpy(name, fact, n);
    name[n] = 0;
    const bool most = fact[n] == '<', least = fact[n] == '>';
    char *end;
    const long want = strtol(fact + n + (most || least ? 2 : 1), &end, 10), is = gate_count(code, name);
    if (*end || is < 0) {
        snprintf(why, room, "`%s`: no such instruction, or no number", fact);
        return false;
    }
    const bool ok = most ? is <= want : least ? is >= want : is == want;
    if (!ok) snprintf(why, room, "%s, but there are %ld", fact, is);
    return ok;
}
bool gate_facts(const gate_code *code, const char *facts, char *why, size_t room) {
    while (*facts) {
        char fact[64];
        const size_t n = strcspn(facts, " ");
        if (n >= sizeof fact) {
            snprintf(why, room, "a fact is too long: %s", facts);
            return false;
        }
        memcpy(fact, facts, n);
        fact[n] = 0;
        if (n && !fact_holds(code, fact, why, room)) return false;
        facts += n + (facts[n] == ' ');
    }
    return true;
}
