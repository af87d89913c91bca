/* /v1/files: what was uploaded, and what batches made. */
#include "batches/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_NAME_BYTES 255

void file_name(const char *id, const char *suffix, char *name)
{
    snprintf(name, 64, "%.*s%s", BATCH_ID_BYTES, id, suffix);
}

/* --- the index -------------------------------------------------------------------------------- */

static void file_free(struct batch_file *f)
{
    free(f->name);
    free(f->entry.owner);
    free(f);
}

static void add(struct batches *b, struct batch_file *f)
{
    index_add(&b->files, &f->entry);
    if (f->entry.serial >= b->next_serial)
        b->next_serial = f->entry.serial + 1;
}

struct batch_file *files_find(const struct batches *b, const char *id, const char *owner)
{
    return (struct batch_file *)index_find(&b->files, id, owner);
}

static const struct disk_field fields[] = {
    DISK_FIELD("id", DISK_TEXT, batch_file, entry.id),
    DISK_FIELD("filename", DISK_OWN, batch_file, name),
    DISK_FIELD("purpose", DISK_TEXT, batch_file, purpose),
    DISK_FIELD("owner", DISK_OWN, batch_file, entry.owner),
    DISK_FIELD("bytes", DISK_LONG, batch_file, bytes),
    DISK_FIELD("serial", DISK_LONG, batch_file, entry.serial),
    DISK_FIELD("created_at", DISK_LONG, batch_file, created_at),
    DISK_FIELD("expires_at", DISK_LONG, batch_file, expires_at),
};
#define N_FIELDS (sizeof fields / sizeof fields[0])

static enum err save(struct batches *b, const struct batch_file *f, struct err_info *e)
{
    char name[64];
    file_name(f->entry.id, ".json", name);
    json_t *v = disk_pack(fields, N_FIELDS, f);
    enum err err = v ? disk_write_json(b->files_fd, name, v, e)
                     : err_set(e, ERR_NOMEM, "no memory to write %s", name);
    json_decref(v);
    return err;
}

/* The bytes before the name of what they are: a file without the second is no file. */
static void erase(struct batches *b, struct batch_file *f)
{
    char name[64];
    file_name(f->entry.id, ".json", name);
    (void)unlinkat(b->files_fd, name, 0);
    file_name(f->entry.id, ".jsonl", name);
    (void)unlinkat(b->files_fd, name, 0);
    index_remove(&b->files, &f->entry);
    file_free(f);
}

/* Into *f what is kept of the file; false, with a line in the log, if it is none. */
static bool load(struct batches *b, const char *stem, struct batch_file *f)
{
    struct err_info e = {0};
    char name[64];
    struct stat st;
    json_t *v;
    file_name(stem, ".json", name);
    if (disk_read_json(b->files_fd, name, &v, &e) != OK) {
        log_warn("batch: a file is left out: %s", e.text);
        return false;
    }
    bool read = disk_unpack(fields, N_FIELDS, v, f) && strcmp(f->entry.id, stem) == 0;
    json_decref(v);
    if (!read) {
        log_warn("batch: a file is left out: %s is not what it should be", name);
        return false;
    }
    file_name(stem, ".jsonl", name);
    if (fstatat(b->files_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
        st.st_size == (off_t)f->bytes)
        return true;
    log_warn(
        "batch: a file is left out: %s does not have its %lld bytes", name, (long long)f->bytes);
    return false;
}

static void load_one(void *ctx, const char *stem)
{
    struct batches *b = ctx;
    struct batch_file *f = mem_zalloc(1, sizeof *f);
    if (load(b, stem, f))
        add(b, f);
    else
        file_free(f);
}

enum err files_load(struct batches *b, struct err_info *e)
{
    return disk_each(b->files_fd, ".json", load_one, b, e);
}

void files_unload(struct batches *b)
{
    for (uint32_t i = 0; i < b->files.n; i++)
        file_free((struct batch_file *)b->files.entries[i]);
    index_deinit(&b->files);
}

static enum err adopt(struct batches *b,
                      const struct batch_file *like,
                      struct batch_file **out,
                      struct err_info *e)
{
    struct batch_file *f = mem_zalloc(1, sizeof *f);
    *f = *like;
    f->name = mem_strdup(like->name);
    f->entry.owner = mem_strdup(like->entry.owner);
    f->entry.serial = b->next_serial++;
    f->created_at = clock_unix();
    f->expires_at = like->expires_at ? f->created_at + like->expires_at : 0;
    enum err err = save(b, f, e);
    if (err) {
        file_free(f);
        return err;
    }
    add(b, f);
    *out = f;
    return OK;
}

enum err files_adopt(struct batches *b,
                     const char *id,
                     const char *name,
                     const char *purpose,
                     const char *owner,
                     struct err_info *e)
{
    struct batch_file f = {.name = (char *)name, .entry.owner = (char *)owner}, *made;
    struct stat st;
    char on_disk[64];
    file_name(id, ".jsonl", on_disk);
    if (fstatat(b->files_fd, on_disk, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return err_set(e, ERR_IO, "%s: %s", on_disk, strerror(errno));
    snprintf(f.entry.id, sizeof f.entry.id, "%s", id);
    snprintf(f.purpose, sizeof f.purpose, "%s", purpose);
    f.bytes = (uint64_t)st.st_size;
    return adopt(b, &f, &made, e);
}

enum err files_check_share(const struct batches *b,
                           const char *owner,
                           uint32_t n,
                           struct err_info *e)
{
    const uint32_t n_own = index_count(&b->files, owner), n_jobs = jobs_under_way(b, owner);
    const uint32_t n_all_jobs = jobs_under_way(b, NULL);
    const uint32_t n_taken = b->files.n + BATCH_RESULTS * n_all_jobs;
    const uint32_t n_free = BATCH_MAX_FILES > n_taken ? BATCH_MAX_FILES - n_taken : 0;
    const bool in_share = owner[0] == '\0' || n_own + BATCH_RESULTS * n_jobs < 4 * n_free;
    if (n_free >= n && in_share)
        return OK;
    return err_set(e,
                   n_jobs > 0 || (n_free < n && n_all_jobs > 0) ? ERR_QUEUE_FULL : ERR_INVALID,
                   "%s %u files, and %u batches under way that keep room for their results; there "
                   "is room for %u more in all: delete some that are not needed any more",
                   owner[0] ? "this key has" : "without a key there are",
                   n_own,
                   n_jobs,
                   n_free);
}

void files_remove_expired(struct batches *b, int64_t now)
{
    for (uint32_t i = b->files.n; i-- > 0;) {
        struct batch_file *f = (struct batch_file *)b->files.entries[i];
        if (f->expires_at && now >= f->expires_at && !jobs_use_file(b, f->entry.id))
            erase(b, f);
    }
}

/* --- routes ----------------------------------------------------------------------------------- */

static json_t *describe(const struct batch_file *f)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:o, s:s, s:s, s:s, s:n}",
                     "id",
                     f->entry.id,
                     "object",
                     "file",
                     "bytes",
                     (json_int_t)f->bytes,
                     "created_at",
                     (json_int_t)f->created_at,
                     "expires_at",
                     f->expires_at ? json_integer(f->expires_at) : json_null(),
                     "filename",
                     f->name,
                     "purpose",
                     f->purpose,
                     "status",
                     "processed",
                     "status_details");
}

static const struct api_part *find_part(const struct api_input *in, const char *name)
{
    for (size_t i = 0; i < in->n_parts; i++)
        if (strcmp(in->parts[i].name, name) == 0)
            return &in->parts[i];
    return NULL;
}

/* expires_after[anchor] and [seconds], as OpenAI has them. 0: not given. */
static enum err parse_expiry(const struct api_input *in, int64_t *seconds, struct err_info *e)
{
    const struct api_part *anchor = find_part(in, "expires_after[anchor]");
    const struct api_part *after = find_part(in, "expires_after[seconds]");
    *seconds = 0;
    if (anchor && strcmp(anchor->data, "created_at") != 0)
        return err_invalid(e, "expires_after", "'expires_after[anchor]' must be created_at");
    if (!after)
        return OK;
    char *end;
    errno = 0;
    long long v = strtoll(after->data, &end, 10);
    if (errno || *end || end == after->data || v < 3600 || v > 2592000)
        return err_invalid(
            e, "expires_after", "'expires_after[seconds]' must be from 3600 to 2592000");
    *seconds = v;
    return OK;
}

static enum err check_upload(const struct batches *b,
                             const struct api_input *in,
                             const struct api_part **file,
                             struct err_info *e)
{
    const struct api_part *purpose = find_part(in, "purpose");
    *file = find_part(in, "file");
    if (in->n_parts == 0)
        return err_set(e, ERR_INVALID, "a file is sent as multipart/form-data");
    if (!purpose)
        return err_invalid(e, "purpose", "'purpose' is required");
    if (strcmp(purpose->data, "batch") != 0)
        return err_invalid(e,
                           "purpose",
                           "'purpose' must be batch; files for '%.40s' are not supported",
                           purpose->data);
    if (!*file)
        return err_invalid(e, "file", "'file' is required");
    if ((*file)->n_filename > MAX_NAME_BYTES)
        return err_invalid(e, "file", "the file's name is longer than %d bytes", MAX_NAME_BYTES);
    if ((*file)->filename && !utf8_valid((*file)->filename, (*file)->n_filename))
        return err_invalid(e, "file", "the file's name is not UTF-8");
    return lines_check(&b->cfg, (*file)->data, (*file)->n_data, e);
}

static enum err upload(struct batches *b,
                       const struct api_input *in,
                       struct api_reply *out,
                       struct err_info *e)
{
    const struct api_part *file = NULL;
    struct batch_file f = {.entry.owner = (char *)in->owner, .purpose = "batch"}, *made;
    char name[64];
    enum err err = check_upload(b, in, &file, e);
    if (err || (err = parse_expiry(in, &f.expires_at, e)))
        return err;
    f.name = (char *)(file->filename ? file->filename : "file.jsonl");
    f.bytes = file->n_data;
    api_new_id("file-", f.entry.id, sizeof f.entry.id);
    file_name(f.entry.id, ".jsonl", name);
    if ((err = disk_write(b->files_fd, name, file->data, file->n_data, e)))
        return err;
    pthread_mutex_lock(&b->lock);
    if (!(err = files_check_share(b, in->owner, 1, e)))
        err = adopt(b, &f, &made, e);
    /* NOLINTNEXTLINE(clang-analyzer-core.*): adopt made it, or there is an error */
    json_t *v = err ? NULL : describe(made);
    pthread_mutex_unlock(&b->lock);
    if (err)
        (void)unlinkat(b->files_fd, name, 0);
    else
        batches_reply_json(out, v);
    return err;
}

static bool has_purpose(void *ctx, const struct entry *e)
{
    return strcmp(((const struct batch_file *)e)->purpose, ctx) == 0;
}

static json_t *describe_entry(void *ctx, const struct entry *e)
{
    (void)ctx;
    return describe((const struct batch_file *)e);
}

static enum err list(struct batches *b,
                     const struct api_input *in,
                     struct api_reply *out,
                     struct err_info *e)
{
    char purpose[32];
    struct list_item item = {
        .ctx = purpose, .describe = describe_entry, .max_page = BATCH_MAX_FILES};
    if (api_query_get(in, "purpose", purpose, sizeof purpose))
        item.wanted = has_purpose;
    pthread_mutex_lock(&b->lock);
    enum err err = index_list(&b->files, in, "file", &item, out, e);
    pthread_mutex_unlock(&b->lock);
    return err;
}

static enum err no_file(const char *id, struct err_info *e)
{
    return err_set_field(e, ERR_NOT_FOUND, "file_id", "there is no file '%.80s'", id);
}

static enum err content(struct batches *b,
                        const struct batch_file *f,
                        struct api_reply *out,
                        struct err_info *e)
{
    char name[64];
    file_name(f->entry.id, ".jsonl", name);
    out->fd = openat(b->files_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (out->fd < 0)
        return err_set(e, ERR_IO, "%s: %s", name, strerror(errno));
    out->n_bytes = f->bytes;
    out->content_type = "application/jsonl";
    return OK;
}

static enum err remove_file(struct batches *b,
                            struct batch_file *f,
                            struct api_reply *out,
                            struct err_info *e)
{
    const char *id = f->entry.id;
    if (jobs_use_file(b, id))
        return err_invalid(e, "file_id", "a batch that is not over works with the file '%s'", id);
    batches_reply_json(out, json_pack("{s:s, s:s, s:b}", "id", id, "object", "file", "deleted", 1));
    erase(b, f);
    return OK;
}

/* rest: what comes behind /v1/files: "", "/ID" or "/ID/content". */
enum err files_route(struct batches *b,
                     const struct api_input *in,
                     const char *rest,
                     struct api_reply *out,
                     struct err_info *e)
{
    char id[BATCH_ID_BYTES];
    const bool get = strcmp(in->method, "GET") == 0;
    if (rest[0] == '\0')
        return get ? list(b, in, out, e) : upload(b, in, out, e);
    batches_path_id(rest + 1, id);
    pthread_mutex_lock(&b->lock);
    struct batch_file *f = files_find(b, id, in->owner);
    enum err err = OK;
    if (!f || (f->expires_at && clock_unix() >= f->expires_at))
        err = no_file(id, e);
    else if (strchr(rest + 1, '/'))
        err = content(b, f, out, e);
    else if (get)
        batches_reply_json(out, describe(f));
    else
        err = remove_file(b, f, out, e);
    pthread_mutex_unlock(&b->lock);
    return err;
}
