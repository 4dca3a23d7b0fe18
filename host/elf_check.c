/* elf_check.c - says what is wrong with a file before dlopen sees it: dlopen's own text is often vague, and a truncated
 * file whose segments end beyond it would be mapped and then end the process with SIGBUS. */
#include "host_internal.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __SIZEOF_POINTER__ == 8
typedef Elf64_Ehdr file_header;
typedef Elf64_Phdr segment_header;
enum { OWN_CLASS = ELFCLASS64 };
#else
typedef Elf32_Ehdr file_header;
typedef Elf32_Phdr segment_header;
enum { OWN_CLASS = ELFCLASS32 };
#endif

#if defined(__x86_64__)
enum { OWN_MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { OWN_MACHINE = EM_AARCH64 };
#else
enum { OWN_MACHINE = EM_NONE }; /* not known: left to dlopen */
#endif

static gdn_status check_header(int fd, uint64_t size, gdn_text *err) {
    file_header h;
    const ssize_t got = pread(fd, &h, sizeof h, 0);
    if (got < 0) {
        gdn__text_set(err, "cannot be read: %s", strerror(errno));
        return GDN_E_LOAD;
    }
    if ((size_t)got < sizeof h.e_ident || memcmp(h.e_ident, ELFMAG, SELFMAG) != 0) {
        gdn__text_set(err, "not a shared object (no ELF header)");
        return GDN_E_LOAD;
    }
    if ((size_t)got < sizeof h) {
        gdn__text_set(err, "truncated: %llu bytes, less than an ELF header", (unsigned long long)size);
        return GDN_E_LOAD;
    }
    if (h.e_ident[EI_CLASS] != OWN_CLASS || (OWN_MACHINE != EM_NONE && h.e_machine != OWN_MACHINE)) {
        gdn__text_set(err, "built for another machine (ELF class %u machine %u, this is class %u machine %u)",
                      (unsigned)h.e_ident[EI_CLASS], (unsigned)h.e_machine, (unsigned)OWN_CLASS, (unsigned)OWN_MACHINE);
        return GDN_E_LOAD;
    }
    if (h.e_type != ET_DYN || h.e_phentsize != sizeof(segment_header)) {
        gdn__text_set(err, "an ELF file, but not a shared object");
        return GDN_E_LOAD;
    }
    for (uint64_t i = 0; i < h.e_phnum; i++) {
        segment_header s;
        const uint64_t at = h.e_phoff + i * sizeof s;
        const bool there = h.e_phoff <= size && at + sizeof s <= size && pread(fd, &s, sizeof s, (off_t)at) == (ssize_t)sizeof s;
        /* Written so that no sum can wrap. */
        if (!there || (s.p_type == PT_LOAD && (s.p_filesz > size || s.p_offset > size - s.p_filesz))) {
            gdn__text_set(err, "truncated: %llu bytes, segment %llu ends beyond them", (unsigned long long)size, (unsigned long long)i);
            return GDN_E_LOAD;
        }
    }
    return GDN_OK;
}

gdn_status gdn__elf_check(const char *path, gdn_text *err) {
    struct stat st, link;
    if (stat(path, &st) != 0) {
        const int why = errno;
        if (why == ENOENT && lstat(path, &link) == 0) {
            gdn__text_set(err, "a dangling link");
            return GDN_E_LOAD;
        }
        gdn__text_set(err, "%s", why == ENOENT ? "no such file" : strerror(why));
        return why == ENOENT || why == ENOTDIR ? GDN_ABSENT : GDN_E_LOAD;
    }
    if (!S_ISREG(st.st_mode)) {
        gdn__text_set(err, "%s", S_ISDIR(st.st_mode) ? "a directory, not a shared object" : "not a regular file");
        return GDN_E_LOAD;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        gdn__text_set(err, "cannot be opened: %s", strerror(errno));
        return GDN_E_LOAD;
    }
    const gdn_status result = check_header(fd, (uint64_t)st.st_size, err);
    (void)close(fd); /* only read */
    return result;
}
