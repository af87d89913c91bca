#include "backend/device/plugin.h"

#include "base/log.h"
#include "base/mem.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "libweir_cuda.so"

static void host_log(int level, const char *text)
{
    log_line((enum log_level)level, "%s", text);
}

static const struct plugin_host host = {
    .log = host_log,
    .zalloc = mem_zalloc,
    .aligned = mem_aligned,
    .watch = mem_watch,
    .drop_pages = gguf_drop_pages,
};

enum err plugin_check(const char *path,
                      const struct plugin_abi *ours,
                      const struct plugin_abi *theirs,
                      struct err_info *e)
{
#define NAME(name) #name,
    static const char *const names[] = {"version", PLUGIN_STRUCTS(NAME)};
#undef NAME
    enum { N = sizeof names / sizeof names[0] };
    _Static_assert(sizeof(struct plugin_abi) == N * sizeof(uint32_t), "a name for each");
    uint32_t a[N], b[N];
    memcpy(a, ours, sizeof a);
    memcpy(b, theirs, sizeof b);
    if (a[0] != b[0])
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "%s: built for version %u of weir's plugins, this is %u",
                       path,
                       b[0],
                       a[0]);
    for (int i = 1; i < N; i++) {
        if (a[i] != b[i])
            return err_set(e,
                           ERR_UNSUPPORTED,
                           "%s: built for another weir: its struct %s has %u bytes, not %u",
                           path,
                           names[i],
                           b[i],
                           a[i]);
    }
    return OK;
}

/* Beside the program, or where it was installed; `out` is empty if neither is there. */
static void find_beside(char *out, size_t cap)
{
    static const char *const places[] = {FILE_NAME, "../lib/weir/" FILE_NAME};
    char dir[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 1);
    out[0] = '\0';
    if (n <= 0)
        return;
    dir[n] = '\0';
    *strrchr(dir, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(out, cap, "%s/%s", dir, places[i]);
        if (access(out, F_OK) == 0)
            return;
    }
    out[0] = '\0';
}

/* dlopen's words for a name that no folder of the library path has; of a file that is there, or of
 * one that it wants, they begin with another name or end in another way. */
static bool is_absent(const char *why)
{
    return strncmp(why, FILE_NAME ":", sizeof FILE_NAME) == 0 && strstr(why, strerror(ENOENT));
}

static enum err load(const struct backend_plugin **out, struct err_info *e)
{
    static const struct plugin_abi ours = PLUGIN_ABI;
    char found[PATH_MAX + 64];
    const char *path = getenv("WEIR_CUDA_PLUGIN");
    const bool named = path && path[0];
    if (!named)
        find_beside(found, sizeof found);
    else if (!realpath(path, found)) /* a name without a slash is no file's to dlopen */
        return err_set(e, ERR_NOT_FOUND, "WEIR_CUDA_PLUGIN=%s: cannot be read", path);
    path = found[0] ? found : FILE_NAME;
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        const char *why = dlerror();
        if (path != found && is_absent(why))
            return err_set(e,
                           ERR_NOT_FOUND,
                           "there is no " FILE_NAME " beside the program nor in the library path");
        return err_set(e, ERR_UNSUPPORTED, "%s: cannot be loaded: %s", path, why);
    }
    plugin_entry_fn entry;
    *(void **)&entry = dlsym(lib, PLUGIN_SYMBOL);
    const struct backend_plugin *p = entry ? entry(&host) : NULL;
    enum err err = p ? plugin_check(path, &ours, &p->abi, e)
                     : err_set(e, ERR_UNSUPPORTED, "%s: not a plugin of weir", path);
    if (err)
        dlclose(lib);
    else
        *out = p;
    return err;
}

enum err plugin_cuda(const struct backend_plugin **out, struct err_info *e)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const struct backend_plugin *loaded;
    enum err err = OK;
    pthread_mutex_lock(&lock);
    if (!loaded)
        err = load(&loaded, e);
    *out = loaded;
    pthread_mutex_unlock(&lock);
    return err;
}
