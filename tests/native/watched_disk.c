/* Intercepts system calls of Python, by LD_PRELOAD: calls about files in one folder are counted,
 * one of them can fail, and those that change the disk are recorded.
 *
 * Headers that declare what is defined here are left out: their names for large files (open64)
 * are macros on some systems and functions on others.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ONCE, SAME_CALL, ALL_CALLS }; /* what fails after the first failure */
enum { MOST_FILES = 65536, MOST_PATH = 4096 };

typedef long long offset; /* off_t on 64-bit systems, and off64_t everywhere */

static int is_on, count, fail_at, error, lasting;
static char folder[MOST_PATH], only[32];
static const char *failing = "";
static char ours[MOST_FILES]; /* by descriptor */
static void *listed[16];      /* folders of ours that are being listed */

struct text {
    char *data;
    size_t size, room;
};
static struct text names, changes;

static void append(struct text *text, const void *data, size_t size) {
    if (text->size + size > text->room) {
        text->room = 2 * (text->size + size);
        text->data = realloc(text->data, text->room);
    }
    memcpy(text->data + text->size, data, size);
    text->size += size;
}

/* Begin. `at` is the number of the call that fails, from 1 on; 0: none. If `call` is not empty,
 * only calls of this name count. */
void watched_begin(const char *path, int at, int number, int how, const char *call) {
    snprintf(folder, sizeof folder, "%s", path);
    snprintf(only, sizeof only, "%s", call);
    count = 0, fail_at = at, error = number, lasting = how, failing = "";
    names.size = changes.size = 0;
    is_on = 1;
}

/* End; returns how many calls there were. */
int watched_end(void) {
    is_on = 0;
    return count;
}

/* The names of all calls, one on each line. */
const char *watched_calls(size_t *size) {
    *size = names.size;
    return names.data;
}

/* The calls that changed the disk: lines of name, number, number, size, path and path, separated by
 * tabs, each followed by `size` bytes. */
const char *watched_changes(size_t *size) {
    *size = changes.size;
    return changes.data;
}

static int is_ours(const char *path) {
    return is_on && path && !strncmp(path, folder, strlen(folder));
}

static int is_open(int file) {
    return is_on && file >= 0 && file < MOST_FILES && ours[file];
}

static int fails(const char *name) {
    if (*only && strcmp(only, name)) return 0;
    append(&names, name, strlen(name));
    append(&names, "\n", 1);
    count++;
    if (count == fail_at) failing = name;
    int hit = count == fail_at ||
              (fail_at && count > fail_at &&
               (lasting == ALL_CALLS || (lasting == SAME_CALL && !strcmp(name, failing))));
    if (hit) errno = error;
    return hit;
}

static void note(const char *name, offset one, offset two, size_t size, const char *path,
                 const char *other) {
    static char line[2 * MOST_PATH + 100];
    int length = snprintf(line, sizeof line, "%s\t%lld\t%lld\t%zu\t%s\t%s\n", name, one, two, size,
                          path, other);
    append(&changes, line, (size_t)length);
}

#define REAL(type, name, ...)                    \
    static type (*real)(__VA_ARGS__);            \
    if (!real) {                                 \
        void *found = dlsym(RTLD_NEXT, #name);   \
        memcpy(&real, &found, sizeof real);      \
    }

/* --- names in folders ----------------------------------------------------------------------- */

#define OPEN(name)                                                         \
    int name(const char *path, int flags, ...) {                           \
        va_list rest;                                                      \
        va_start(rest, flags);                                             \
        unsigned mode = va_arg(rest, unsigned);                            \
        va_end(rest);                                                      \
        REAL(int, name, const char *, int, ...)                            \
        if (is_ours(path) && fails("open")) return -1;                     \
        int file = real(path, flags, mode);                                \
        if (file >= 0 && file < MOST_FILES) ours[file] = (char)is_ours(path); \
        if (is_open(file)) note("open", file, flags, 0, path, "");         \
        return file;                                                       \
    }
OPEN(open)
OPEN(open64)

#define ONE_PATH(name)                                           \
    int name(const char *path) {                                 \
        REAL(int, name, const char *)                            \
        if (is_ours(path) && fails(#name)) return -1;            \
        int status = real(path);                                 \
        if (!status && is_ours(path)) note(#name, 0, 0, 0, path, ""); \
        return status;                                           \
    }
ONE_PATH(unlink)
ONE_PATH(rmdir)

int mkdir(const char *path, unsigned mode) {
    REAL(int, mkdir, const char *, unsigned)
    if (is_ours(path) && fails("mkdir")) return -1;
    int status = real(path, mode);
    if (!status && is_ours(path)) note("mkdir", 0, 0, 0, path, "");
    return status;
}

#define TWO_PATHS(name)                                                \
    int name(const char *from, const char *to) {                       \
        REAL(int, name, const char *, const char *)                    \
        if (is_ours(from) && fails(#name)) return -1;                  \
        int status = real(from, to);                                   \
        if (!status && is_ours(from)) note(#name, 0, 0, 0, from, to);  \
        return status;                                                 \
    }
TWO_PATHS(rename)
TWO_PATHS(link)

int linkat(int here, const char *from, int there, const char *to, int flags) {
    REAL(int, linkat, int, const char *, int, const char *, int)
    if (is_ours(from) && fails("link")) return -1;
    int status = real(here, from, there, to, flags);
    if (!status && is_ours(from)) note("link", 0, 0, 0, from, to);
    return status;
}

/* --- open files ------------------------------------------------------------------------------ */

int close(int file) {
    REAL(int, close, int)
    int was_ours = is_open(file);
    if (file >= 0 && file < MOST_FILES) ours[file] = 0;
    if (was_ours) note("close", file, 0, 0, "", "");
    int hit = was_ours && fails("close");
    int status = real(file); /* as on Linux, the file is closed even if this fails */
    if (!hit) return status;
    errno = error;
    return -1;
}

ssize_t write(int file, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t)
    if (!is_open(file)) return real(file, data, size);
    int hit = fails("write");
    if (hit && error == EINTR) return -1; /* the call is repeated, so nothing may be written */
    ssize_t done = real(file, data, hit ? size / 2 : size); /* a full disk takes a part */
    if (done > 0) {
        note("write", file, 0, (size_t)done, "", "");
        append(&changes, data, (size_t)done);
    }
    if (!hit) return done;
    errno = error;
    return -1;
}

#define SYNC(name)                                                  \
    int name(int file) {                                            \
        REAL(int, name, int)                                        \
        int hit = is_open(file) && fails("fsync");                  \
        int status = hit ? -1 : real(file);                         \
        if (is_open(file)) note("fsync", file, status, 0, "", "");  \
        if (hit) errno = error;                                     \
        return status;                                              \
    }
SYNC(fsync)
SYNC(fdatasync)

#define FTRUNCATE(name)                                                \
    int name(int file, offset size) {                                  \
        REAL(int, name, int, offset)                                   \
        if (is_open(file) && fails("ftruncate")) return -1;            \
        int status = real(file, size);                                 \
        if (!status && is_open(file)) note("ftruncate", file, size, 0, "", ""); \
        return status;                                                 \
    }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)

ssize_t read(int file, void *data, size_t size) {
    REAL(ssize_t, read, int, void *, size_t)
    if (is_open(file) && fails("read")) return -1;
    return real(file, data, size);
}

#define PREAD(name)                                             \
    ssize_t name(int file, void *data, size_t size, offset at) { \
        REAL(ssize_t, name, int, void *, size_t, offset)        \
        if (is_open(file) && fails("read")) return -1;          \
        return real(file, data, size, at);                      \
    }
PREAD(pread)
PREAD(pread64)

#define MMAP(name)                                                                \
    void *name(void *near, size_t size, int allowed, int flags, int file, offset at) { \
        REAL(void *, name, void *, size_t, int, int, int, offset)                 \
        if (is_open(file) && fails("mmap")) return (void *)-1;                    \
        return real(near, size, allowed, flags, file, at);                        \
    }
MMAP(mmap)
MMAP(mmap64)

int flock(int file, int what) {
    REAL(int, flock, int, int)
    if (is_open(file) && fails("flock")) return -1;
    return real(file, what);
}

/* --- looking --------------------------------------------------------------------------------- */

#define STAT(name)                                       \
    int name(const char *path, void *found) {            \
        REAL(int, name, const char *, void *)            \
        if (is_ours(path) && fails("stat")) return -1;   \
        return real(path, found);                        \
    }
STAT(stat)
STAT(stat64)
STAT(lstat)
STAT(lstat64)

#define FSTAT(name)                                     \
    int name(int file, void *found) {                   \
        REAL(int, name, int, void *)                    \
        if (is_open(file) && fails("fstat")) return -1; \
        return real(file, found);                       \
    }
FSTAT(fstat)
FSTAT(fstat64)

/* The names of the same calls in a Python that was built for an older libc. */
#define XSTAT(name)                                          \
    int name(int version, const char *path, void *found) {   \
        REAL(int, name, int, const char *, void *)           \
        if (is_ours(path) && fails("stat")) return -1;       \
        return real(version, path, found);                   \
    }
XSTAT(__xstat)
XSTAT(__xstat64)
XSTAT(__lxstat)
XSTAT(__lxstat64)

#define FXSTAT(name)                                    \
    int name(int version, int file, void *found) {      \
        REAL(int, name, int, int, void *)               \
        if (is_open(file) && fails("fstat")) return -1; \
        return real(version, file, found);              \
    }
FXSTAT(__fxstat)
FXSTAT(__fxstat64)

#define STATVFS(name)                                      \
    int name(const char *path, void *found) {              \
        REAL(int, name, const char *, void *)              \
        if (is_ours(path) && fails("statvfs")) return -1;  \
        return real(path, found);                          \
    }
STATVFS(statvfs)
STATVFS(statvfs64)

int faccessat(int here, const char *path, int what, int flags) {
    REAL(int, faccessat, int, const char *, int, int)
    if (is_ours(path) && fails("access")) return -1;
    return real(here, path, what, flags);
}

int chmod(const char *path, unsigned mode) {
    REAL(int, chmod, const char *, unsigned)
    if (is_ours(path) && fails("chmod")) return -1;
    return real(path, mode);
}

void *opendir(const char *path) {
    REAL(void *, opendir, const char *)
    if (is_ours(path) && fails("getdents")) return NULL;
    void *found = real(path);
    for (size_t i = 0; is_ours(path) && found && i < sizeof listed / sizeof *listed; i++)
        if (!listed[i]) {
            listed[i] = found;
            break;
        }
    return found;
}

int closedir(void *list) {
    REAL(int, closedir, void *)
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++)
        if (listed[i] == list) listed[i] = NULL;
    return real(list);
}

#define READDIR(name)                                                       \
    void *name(void *list) {                                                \
        REAL(void *, name, void *)                                          \
        for (size_t i = 0; is_on && i < sizeof listed / sizeof *listed; i++) \
            if (listed[i] == list && fails("getdents")) return NULL;        \
        return real(list);                                                  \
    }
READDIR(readdir)
READDIR(readdir64)
