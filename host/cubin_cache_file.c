/* cubin_cache_file.c - files of the cache: written whole, read with an owner check, one writer a key. */
#define _GNU_SOURCE /* O_CLOEXEC, O_NOFOLLOW */
#include "cubin_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

/* Others cannot make a file be ours, so what is ours or root's was put there by us or by somebody who could do anything. */
static bool owner_ok(uid_t have, uid_t also) {
    return have == geteuid() || have == 0 || have == also;
}

gdn_status gdn__folder_make(const char *path, mode_t mode, gdn_text *why) {
    if (mkdir(path, mode) == 0 || errno == EEXIST) return GDN_OK;
    gdn__text_set(why, "%s: cannot be made: %s", path, strerror(errno));
    return GDN_E_IO;
}

gdn_status gdn__folder_check(const char *path, uid_t owner, gdn_text *why) {
    struct stat st;
    if (stat(path, &st) != 0) {
        gdn__text_set(why, "%s: %s", path, strerror(errno));
        return GDN_E_IO;
    }
    if (!S_ISDIR(st.st_mode)) {
        gdn__text_set(why, "%s: not a folder", path);
        return GDN_E_IO;
    }
    if (!owner_ok(st.st_uid, owner)) {
        gdn__text_set(why, "%s: belongs to user %u", path, (unsigned)st.st_uid);
        return GDN_E_IO;
    }
    if ((st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX)) {
        gdn__text_set(why, "%s: everybody may write there (mode %04o)", path, (unsigned)(st.st_mode & 07777));
        return GDN_E_IO;
    }
    return GDN_OK;
}

static bool write_all(int fd, const char *p, size_t n) {
    while (n) {
        const ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* A rename is only safe against a power cut when the folder is on disk as well. */
static bool sync_folder(const char *folder) {
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool ok = fsync(fd) == 0 || errno == EINVAL; /* some file systems cannot */
    return close(fd) == 0 && ok;
}

gdn_status gdn__file_write(const char *folder, const char *name, const void *data, size_t size, gdn_text *why) {
    static _Atomic uint32_t counter;
    char *temp = gdn__format("%s/.%s.%ld.%u.tmp", folder, name, (long)getpid(), (unsigned)atomic_fetch_add(&counter, 1));
    char *final = gdn__format("%s/%s", folder, name);
    gdn_status st = GDN_E_IO;
    const char *step = "made";
    int fd = -1;
    if (!temp || !final) {
        gdn__text_set(why, "%s", gdn_status_text(GDN_E_NOMEM));
        st = GDN_E_NOMEM;
        goto out;
    }
    fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) goto failed;
    step = "written";
    const bool written = write_all(fd, data, size) && fsync(fd) == 0;
    int saved = errno;
    const bool closed = close(fd) == 0;
    if (written && !closed) saved = errno;
    errno = saved;
    if (!written || !closed) goto failed;
    step = "renamed";
    if (rename(temp, final) != 0) goto failed;
    if (!sync_folder(folder)) {
        gdn__text_set(why, "%s: cannot be synced: %s", folder, strerror(errno));
        goto out;
    }
    st = GDN_OK;
    goto out;
failed:
    gdn__text_set(why, "%s: cannot be %s: %s", temp, step, strerror(errno));
    (void)unlink(temp);
out:
    free(final);
    free(temp);
    return st;
}

gdn_status gdn__file_read(const char *path, uid_t owner, size_t limit, char **data, size_t *size, gdn_text *why) {
    struct stat st;
    gdn_status result = GDN_E_IO;
    char *buf = NULL;
    size_t have = 0;
    *data = NULL;
    *size = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        gdn__text_set(why, "%s: %s", path, strerror(errno));
        return GDN_ABSENT;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        gdn__text_set(why, "%s: not a regular file", path);
    } else if (!owner_ok(st.st_uid, owner) || (st.st_mode & S_IWOTH)) {
        gdn__text_set(why, "%s: belongs to user %u, mode %04o: not trusted", path, (unsigned)st.st_uid, (unsigned)(st.st_mode & 07777));
    } else if (st.st_size < 0 || (uint64_t)st.st_size > limit) {
        gdn__text_set(why, "%s: %lld bytes, at most %zu are read", path, (long long)st.st_size, limit);
    } else if (!(buf = gdn__alloc((size_t)st.st_size + 1))) {
        gdn__text_set(why, "%s", gdn_status_text(GDN_E_NOMEM));
        result = GDN_E_NOMEM;
    } else {
        const size_t n = (size_t)st.st_size;
        ssize_t k = 1;
        while (have < n && k > 0) {
            k = read(fd, buf + have, n - have);
            if (k < 0 && errno == EINTR)
                k = 1;
            else if (k > 0)
                have += (size_t)k;
        }
        result = have == n ? GDN_OK : GDN_E_IO;
        if (have != n) gdn__text_set(why, "%s: %s", path, k < 0 ? strerror(errno) : "shrank while it was read");
    }
    (void)close(fd); /* only read */
    if (result == GDN_OK) {
        *data = buf;
        *size = have;
    } else {
        free(buf);
    }
    return result;
}

/* The holder removes the file, so what was locked may be a file that is no longer there: then another try. */
static bool still_there(int fd, const char *path) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

int gdn__key_lock(const char *folder, const gdn__key *key, gdn_text *why) {
    enum { POLL_MS = 10, PATIENCE_MS = 120000 }; /* longer than any compile; a stopped process must not stop this one */
    const struct timespec nap = { 0, POLL_MS * 1000000L };
    char *path = gdn__format("%s/.%s.lock", folder, key->hex);
    int fd = -1;
    if (!path) {
        gdn__text_set(why, "%s", gdn_status_text(GDN_E_NOMEM));
        return -1;
    }
    for (int waited = 0; waited < PATIENCE_MS;) {
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0) {
            gdn__text_set(why, "%s: %s", path, strerror(errno));
            break;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            if (still_there(fd, path)) break;
        } else if (errno == EWOULDBLOCK || errno == EINTR) {
            (void)nanosleep(&nap, NULL);
            waited += POLL_MS;
        } else {
            gdn__text_set(why, "%s: cannot be locked: %s", path, strerror(errno));
            (void)close(fd);
            fd = -1;
            break;
        }
        (void)close(fd);
        fd = -1;
        gdn__text_set(why, "%s: held by another process for %d s", path, waited / 1000);
    }
    free(path);
    return fd;
}

void gdn__key_unlock(const char *folder, const gdn__key *key, int fd) {
    if (fd < 0) return;
    char *path = gdn__format("%s/.%s.lock", folder, key->hex);
    if (path) (void)unlink(path); /* while it is held; one that stays is reaped later */
    free(path);
    (void)close(fd);
}
