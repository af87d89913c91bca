#include "api/keys.h"
#include "api/json.h"
#include "base/hex.h"
#include "base/mem.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAME_BYTES 64
#define MAX_SALT_BYTES 1024
#define MAX_LIMIT 1000000000

enum refusal { REFUSED_REQUESTS, REFUSED_TOKENS, REFUSED_CONCURRENCY, N_REFUSALS };
static const char *const refusal_names[] = {"requests", "tokens", "concurrency"};

/* What a file says of one key. */
struct terms {
    char name[MAX_NAME_BYTES + 1];
    unsigned char digest[API_KEY_BYTES];
    uint64_t requests, tokens; /* a minute; 0: no limit */
    uint32_t concurrency;      /* 0: no limit */
    int32_t priority;
    bool limits_priority, admin, has_space;
    unsigned char space[API_KEY_BYTES];
};

struct api_key {
    char name[MAX_NAME_BYTES + 1]; /* constant, so that it may be read without the lock */
    struct terms terms;
    bool open; /* in the file as it was last read */
    uint32_t tenant;
    struct bucket requests, tokens;
    uint32_t n_running;
    uint64_t n_requests, n_refused[N_REFUSALS];
    uint64_t n_prompt, n_cached, n_generated;
};

struct api_keys {
    pthread_mutex_t lock;
    bool wanted; /* ordinary routes want a key */
    struct api_key *entries[API_MAX_KEYS];
    uint32_t n_entries;
    bool has_admin;
    struct api_key admin;
};

struct api_keys *api_keys_create(void)
{
    struct api_keys *k = mem_zalloc(1, sizeof *k);
    pthread_mutex_init(&k->lock, NULL);
    strcpy(k->admin.name, "(admin)"); /* no name in a file has parentheses */
    return k;
}

void api_keys_destroy(struct api_keys *k)
{
    if (!k)
        return;
    for (uint32_t i = 0; i < k->n_entries; i++)
        free(k->entries[i]);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

const char *api_key_name(const struct api_key *key)
{
    return key->name;
}

static void digest_of(const char *text, size_t n, unsigned char *out)
{
    SHA256((const unsigned char *)text, n, out);
}

/* ---- the file ----------------------------------------------------------------------------- */

static enum err read_name(const json_t *o, struct terms *t, struct err_info *e)
{
    struct gguf_str s = {0};
    enum err err = api_get_str(o, "name", &s, e);
    if (err)
        return err;
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._@-";
    if (s.len == 0 || s.len > MAX_NAME_BYTES || strspn(s.data, allowed) != s.len)
        return err_set(e,
                       ERR_INVALID,
                       "a key needs a 'name' of 1 to %d letters, digits and any of ._@-",
                       MAX_NAME_BYTES);
    memcpy(t->name, s.data, s.len);
    return OK;
}

/* "key" in the open, or its digest as "sha256": one of them. */
static enum err read_digest(const json_t *o, struct terms *t, uint32_t *n_plain, struct err_info *e)
{
    struct gguf_str key = {0}, hex = {0};
    enum err err;
    if ((err = api_get_str(o, "key", &key, e)) || (err = api_get_str(o, "sha256", &hex, e)))
        return err;
    if (!key.data == !hex.data)
        return err_set(e, ERR_INVALID, "either 'key' or 'sha256' must be there");
    if (key.data) {
        for (size_t i = 0; i < key.len; i++) {
            if (key.data[i] <= 0x20 || key.data[i] >= 0x7f)
                return err_set(e, ERR_INVALID, "'key' must be visible ASCII without blanks");
        }
        if (key.len == 0)
            return err_set(e, ERR_INVALID, "'key' is empty");
        digest_of(key.data, key.len, t->digest);
        ++*n_plain;
        return OK;
    }
    bool ok = hex.len == 2 * sizeof t->digest;
    for (size_t i = 0; ok && i < sizeof t->digest; i++) {
        int hi = hex_digit(hex.data[2 * i]), lo = hex_digit(hex.data[2 * i + 1]);
        ok = hi >= 0 && lo >= 0;
        if (ok)
            t->digest[i] = (unsigned char)(hi << 4 | lo);
    }
    return ok ? OK : err_set(e, ERR_INVALID, "'sha256' must be 64 hexadecimal digits");
}

static enum err read_limits(const json_t *o, struct terms *t, struct err_info *e)
{
    int64_t requests = 0, tokens = 0, concurrency = 0, priority = 0;
    enum err err;
    if ((err = api_get_int(o, "requests_per_minute", 1, MAX_LIMIT, &requests, e)) ||
        (err = api_get_int(o, "tokens_per_minute", 1, MAX_LIMIT, &tokens, e)) ||
        (err = api_get_int(o, "concurrency", 1, MAX_LIMIT, &concurrency, e)) ||
        (err = api_get_int(o, "priority", -100, 100, &priority, e)) ||
        (err = api_get_bool(o, "admin", &t->admin, e)))
        return err;
    t->requests = (uint64_t)requests;
    t->tokens = (uint64_t)tokens;
    t->concurrency = (uint32_t)concurrency;
    t->priority = (int32_t)priority;
    t->limits_priority = true;
    return OK;
}

static enum err read_salt(const json_t *o, struct terms *t, struct err_info *e)
{
    struct gguf_str salt = {0};
    enum err err = api_get_str(o, "cache_salt", &salt, e);
    if (err)
        return err;
    if (salt.len > MAX_SALT_BYTES)
        return err_set(e, ERR_INVALID, "'cache_salt' has more than %d bytes", MAX_SALT_BYTES);
    t->has_space = salt.len > 0;
    digest_of(salt.data ? salt.data : "", salt.len, t->space);
    return OK;
}

/* A field that is misspelt would be a limit that is not there. */
static enum err check_fields(const json_t *o, struct err_info *e)
{
    static const char *const known[] = {"name",
                                        "key",
                                        "sha256",
                                        "requests_per_minute",
                                        "tokens_per_minute",
                                        "concurrency",
                                        "priority",
                                        "cache_salt",
                                        "admin"};
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)o, name, v)
    {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            found |= strcmp(name, known[i]) == 0;
        if (!found)
            return err_set(e, ERR_INVALID, "there is no field '%.40s'", name);
    }
    return OK;
}

static enum err read_key(const json_t *o, struct terms *t, uint32_t *n_plain, struct err_info *e)
{
    enum err err;
    if (!json_is_object(o))
        return err_set(e, ERR_INVALID, "must be an object, not %s", api_json_kind(o));
    if ((err = check_fields(o, e)) || (err = read_name(o, t, e)) ||
        (err = read_digest(o, t, n_plain, e)) || (err = read_limits(o, t, e)))
        return err;
    return read_salt(o, t, e);
}

static enum err check_unique(const struct terms *all, uint32_t n, struct err_info *e)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(all[i].name, all[j].name) == 0)
                return err_set(e, ERR_INVALID, "keys[%u]: '%s' was there before", i, all[i].name);
            if (memcmp(all[i].digest, all[j].digest, sizeof all[i].digest) == 0)
                return err_set(e,
                               ERR_INVALID,
                               "keys[%u]: '%s' and '%s' have the same key",
                               i,
                               all[j].name,
                               all[i].name);
        }
    }
    return OK;
}

/* The list into *out, malloc'd [n]. */
static enum err read_file(
    const json_t *root, struct terms **out, uint32_t *n, uint32_t *n_plain, struct err_info *e)
{
    const json_t *list = json_object_get(root, "keys");
    struct err_info why = {0};
    enum err err = OK;
    if (!json_is_array(list) || json_object_size(root) != 1)
        return err_set(e, ERR_INVALID, "the file must be {\"keys\": [...]} and nothing else");
    if (json_array_size(list) > API_MAX_KEYS)
        return err_set(e, ERR_INVALID, "there are more than %d keys", API_MAX_KEYS);
    *n = (uint32_t)json_array_size(list);
    *out = mem_zalloc((size_t)*n + 1, sizeof **out);
    for (uint32_t i = 0; !err && i < *n; i++) {
        err = read_key(json_array_get(list, i), &(*out)[i], n_plain, &why);
        if (err)
            err = err_set(e, err, "keys[%u]: %s", i, why.text);
    }
    return err ? err : check_unique(*out, *n, e);
}

/* ---- putting it in force: under the lock -------------------------------------------------- */

static struct api_key *find_name(const struct api_keys *k, const char *name)
{
    for (uint32_t i = 0; i < k->n_entries; i++) {
        if (strcmp(k->entries[i]->name, name) == 0)
            return k->entries[i];
    }
    return NULL;
}

static void put_terms(struct api_keys *k, const struct terms *t, uint64_t now_us)
{
    struct api_key *key = find_name(k, t->name);
    if (!key) {
        key = k->entries[k->n_entries] = mem_zalloc(1, sizeof *key);
        memcpy(key->name, t->name, sizeof key->name);
        key->tenant = ++k->n_entries;
    }
    key->terms = *t;
    key->open = true;
    bucket_set(&key->requests, t->requests, now_us);
    bucket_set(&key->tokens, t->tokens, now_us);
}

static enum err put_all(
    struct api_keys *k, const struct terms *all, uint32_t n, uint64_t now_us, struct err_info *e)
{
    uint32_t n_new = 0;
    for (uint32_t i = 0; i < n; i++)
        n_new += find_name(k, all[i].name) == NULL;
    if (n_new > API_MAX_KEYS - k->n_entries)
        return err_set(e,
                       ERR_INVALID,
                       "that makes more than %d names since the start; a restart forgets old ones",
                       API_MAX_KEYS);
    for (uint32_t i = 0; i < k->n_entries; i++)
        k->entries[i]->open = false;
    for (uint32_t i = 0; i < n; i++)
        put_terms(k, &all[i], now_us);
    k->wanted = true;
    return OK;
}

enum err api_keys_load(struct api_keys *k,
                       const char *text,
                       size_t n,
                       uint64_t now_us,
                       uint32_t *n_plain,
                       struct err_info *e)
{
    json_error_t je;
    struct terms *all = NULL;
    uint32_t n_keys = 0;
    *n_plain = 0;
    json_t *root = api_json_load(text, n, JSON_REJECT_DUPLICATES, &je);
    if (!root)
        return err_set(e, ERR_FORMAT, "line %d: %s", je.line, je.text);
    enum err err = read_file(root, &all, &n_keys, n_plain, e);
    if (!err) {
        pthread_mutex_lock(&k->lock);
        err = put_all(k, all, n_keys, now_us, e);
        pthread_mutex_unlock(&k->lock);
    }
    free(all);
    json_decref(root);
    return err;
}

void api_keys_set_single(struct api_keys *k, const char *key)
{
    struct terms t = {.name = "default", .admin = false};
    digest_of(key, strlen(key), t.digest);
    pthread_mutex_lock(&k->lock);
    put_terms(k, &t, 0);
    k->wanted = true;
    pthread_mutex_unlock(&k->lock);
}

void api_keys_set_admin(struct api_keys *k, const char *key)
{
    pthread_mutex_lock(&k->lock);
    digest_of(key, strlen(key), k->admin.terms.digest);
    k->has_admin = true;
    pthread_mutex_unlock(&k->lock);
}

/* ---- who is it? --------------------------------------------------------------------------- */

/* Every entry is compared, so that the time tells nothing. Under the lock. */
static struct api_key *find_digest(struct api_keys *k, const unsigned char *digest)
{
    struct api_key *found = NULL;
    for (uint32_t i = 0; i < k->n_entries; i++) {
        struct api_key *key = k->entries[i];
        if (CRYPTO_memcmp(digest, key->terms.digest, API_KEY_BYTES) == 0 && key->open)
            found = key;
    }
    if (CRYPTO_memcmp(digest, k->admin.terms.digest, API_KEY_BYTES) == 0 && k->has_admin)
        found = &k->admin;
    return found;
}

enum err api_keys_identify(struct api_keys *k,
                           const char *credential,
                           bool admin_route,
                           struct api_key **who,
                           struct err_info *e)
{
    unsigned char digest[API_KEY_BYTES];
    enum err err = OK;
    *who = NULL;
    digest_of(credential ? credential : "", credential ? strlen(credential) : 0, digest);
    pthread_mutex_lock(&k->lock);
    bool for_admin = admin_route && k->has_admin;
    if (k->wanted || for_admin) {
        struct api_key *key = credential ? find_digest(k, digest) : NULL;
        if (!key)
            err = err_set(e,
                          ERR_AUTH,
                          credential ? "the API key is wrong"
                                     : "an API key is required: Authorization: Bearer KEY");
        else if (for_admin && key != &k->admin && !key->terms.admin)
            err = err_set(e, ERR_FORBIDDEN, "this route is for the administrator's key");
        else if (!admin_route && key == &k->admin)
            err = err_set(e, ERR_FORBIDDEN, "the administrator's key is not for this route");
        *who = key; /* known, even if it may not */
    }
    pthread_mutex_unlock(&k->lock);
    return err;
}

struct api_key_terms api_keys_terms(struct api_keys *k, const struct api_key *key)
{
    pthread_mutex_lock(&k->lock);
    const struct terms *t = &key->terms;
    struct api_key_terms out = {.limits_priority = t->limits_priority,
                                .priority = t->priority,
                                .has_space = t->has_space,
                                .tenant = key->tenant};
    memcpy(out.space, t->space, sizeof out.space);
    pthread_mutex_unlock(&k->lock);
    return out;
}

struct api_key_terms api_keys_terms_gone(const char *name)
{
    struct api_key_terms out = {.has_space = true};
    digest_of(name, strlen(name) + 1, out.space); /* no salt has a NUL */
    return out;
}

/* ---- limits ------------------------------------------------------------------------------- */

static uint32_t whole_seconds(uint64_t us)
{
    uint64_t s = us / 1000000 + (us % 1000000 != 0);
    return s == 0 ? 1 : s > 86400 ? 86400 : (uint32_t)s;
}

/* Until the bucket has n; for work of the background, and half of a minute's worth beside them, as
 * far as it holds that much. */
static uint64_t wait_for(struct bucket *b, uint64_t n, bool background, uint64_t now_us)
{
    uint64_t most = b->per_minute;
    if (background && n <= most)
        n = n < most - most / 2 ? n + most / 2 : most;
    return bucket_wait_us(b, n, now_us);
}

enum err api_keys_enter(struct api_keys *k,
                        struct api_key *key,
                        bool background,
                        uint64_t now_us,
                        uint32_t *retry_s,
                        struct err_info *e)
{
    enum err err = OK;
    *retry_s = 0;
    pthread_mutex_lock(&k->lock);
    const struct terms *t = &key->terms;
    uint32_t places = background ? (t->concurrency + 1) / 2 : t->concurrency;
    uint64_t wait_us = wait_for(&key->requests, 1, background, now_us);
    if (t->concurrency && key->n_running >= places) {
        key->n_refused[REFUSED_CONCURRENCY] += !background;
        err = err_set(e,
                      ERR_RATE_LIMIT,
                      "the key allows %u requests at once, and as many are running",
                      t->concurrency);
    } else if (wait_us > 0) {
        key->n_refused[REFUSED_REQUESTS] += !background;
        *retry_s = whole_seconds(wait_us);
        err = err_set(e,
                      ERR_RATE_LIMIT,
                      "the key allows %llu requests a minute; come back in %u s",
                      (unsigned long long)t->requests,
                      *retry_s);
    } else {
        bucket_take(&key->requests, 1, now_us);
        key->n_running++;
    }
    pthread_mutex_unlock(&k->lock);
    return err;
}

enum err api_keys_take_prompt(struct api_keys *k,
                              struct api_key *key,
                              bool background,
                              uint64_t n_tokens,
                              uint64_t now_us,
                              uint32_t *retry_s,
                              struct err_info *e)
{
    enum err err = OK;
    *retry_s = 0;
    pthread_mutex_lock(&k->lock);
    uint64_t wait_us = wait_for(&key->tokens, n_tokens, background, now_us);
    if (wait_us == 0) {
        bucket_take(&key->tokens, n_tokens, now_us);
    } else if (wait_us == UINT64_MAX) {
        err = err_set(e,
                      ERR_TOO_LARGE,
                      "the prompt has %llu tokens, more than the %llu a minute that the key allows",
                      (unsigned long long)n_tokens,
                      (unsigned long long)key->terms.tokens);
    } else {
        *retry_s = whole_seconds(wait_us);
        err = err_set(e,
                      ERR_RATE_LIMIT,
                      "the key allows %llu tokens a minute and has %llu left, but the prompt has "
                      "%llu; come back in %u s",
                      (unsigned long long)key->terms.tokens,
                      (unsigned long long)bucket_left(&key->tokens, now_us),
                      (unsigned long long)n_tokens,
                      *retry_s);
    }
    if (err && (!background || err == ERR_TOO_LARGE))
        key->n_refused[REFUSED_TOKENS]++;
    pthread_mutex_unlock(&k->lock);
    return err;
}

void api_keys_undo(struct api_keys *k, struct api_key *key, uint64_t n_prompt, uint64_t now_us)
{
    pthread_mutex_lock(&k->lock);
    bucket_give_back(&key->requests, 1, now_us);
    bucket_give_back(&key->tokens, n_prompt, now_us);
    pthread_mutex_unlock(&k->lock);
}

void api_keys_leave(struct api_keys *k,
                    struct api_key *key,
                    const struct api_key_usage *u,
                    uint64_t now_us)
{
    pthread_mutex_lock(&k->lock);
    key->n_running--;
    key->n_requests += !u->refused;
    key->n_prompt += u->n_prompt;
    key->n_cached += u->n_cached;
    key->n_generated += u->n_generated;
    bucket_take(&key->tokens, u->n_generated, now_us);
    pthread_mutex_unlock(&k->lock);
}

struct api_key *api_keys_named(struct api_keys *k, const char *name)
{
    pthread_mutex_lock(&k->lock);
    struct api_key *key = find_name(k, name);
    pthread_mutex_unlock(&k->lock);
    return key;
}

static void state_of(
    struct bucket *b, uint64_t now_us, uint64_t *limit, uint64_t *left, uint64_t *us)
{
    *limit = b->per_minute;
    *left = b->per_minute ? bucket_left(b, now_us) : 0;
    *us = bucket_wait_us(b, b->per_minute, now_us);
}

struct api_key_state api_keys_state(struct api_keys *k, struct api_key *key, uint64_t now_us)
{
    struct api_key_state s;
    pthread_mutex_lock(&k->lock);
    state_of(&key->requests, now_us, &s.requests, &s.requests_left, &s.requests_full_us);
    state_of(&key->tokens, now_us, &s.tokens, &s.tokens_left, &s.tokens_full_us);
    pthread_mutex_unlock(&k->lock);
    return s;
}

/* ---- metrics ------------------------------------------------------------------------------ */

static void put_head(const char *name, const char *type, const char *help, struct buf *out)
{
    buf_printf(out, "# HELP weir_%s %s\n# TYPE weir_%s %s\n", name, help, name, type);
}

static void put_refused(const struct api_keys *k, struct buf *out)
{
    static const char name[] = "key_refused_total";
    put_head(name, "counter", "Requests refused with 429 or 413, by the limit met.", out);
    for (uint32_t i = 0; i < k->n_entries; i++) {
        for (int r = 0; r < N_REFUSALS; r++)
            buf_printf(out,
                       "weir_%s{key=\"%s\",limit=\"%s\"} %llu\n",
                       name,
                       k->entries[i]->name,
                       refusal_names[r],
                       (unsigned long long)k->entries[i]->n_refused[r]);
    }
}

static void put_running(const struct api_keys *k, struct buf *out)
{
    static const char name[] = "key_requests_running";
    put_head(name, "gauge", "Requests under way.", out);
    for (uint32_t i = 0; i < k->n_entries; i++)
        buf_printf(
            out, "weir_%s{key=\"%s\"} %u\n", name, k->entries[i]->name, k->entries[i]->n_running);
}

/* Counters, each a member of every entry. */
static const struct column {
    const char *name, *help;
    size_t at;
} columns[] = {
    {"key_requests_total",
     "Requests that were let in, whatever they were answered, once they have ended.",
     offsetof(struct api_key, n_requests)},
    {"key_prompt_tokens_total",
     "Prompt tokens, of requests that ended.",
     offsetof(struct api_key, n_prompt)},
    {"key_cached_tokens_total",
     "Those of them that were found computed.",
     offsetof(struct api_key, n_cached)},
    {"key_generation_tokens_total",
     "Tokens generated, of requests that ended.",
     offsetof(struct api_key, n_generated)},
};

static void put_column(const struct api_keys *k, const struct column *c, struct buf *out)
{
    put_head(c->name, "counter", c->help, out);
    for (uint32_t i = 0; i < k->n_entries; i++) {
        const struct api_key *key = k->entries[i];
        uint64_t v;
        memcpy(&v, (const char *)key + c->at, sizeof v);
        buf_printf(out, "weir_%s{key=\"%s\"} %llu\n", c->name, key->name, (unsigned long long)v);
    }
}

void api_keys_metrics(struct api_keys *k, struct buf *out)
{
    pthread_mutex_lock(&k->lock);
    if (k->n_entries > 0) {
        put_running(k, out);
        put_refused(k, out);
        for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
            put_column(k, &columns[i], out);
    }
    pthread_mutex_unlock(&k->lock);
}
