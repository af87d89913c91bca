#include "cli/serve_options.h"

#include "base/mem.h"
#include "chat/builtin.h"
#include "chat/reply.h"
#include "cli/cli.h"
#include "cli/device_options.h"
#include "cli/serve_flags.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What --preset sets. An inter-token target of 0 is automatic (engine/pace.h). */
static const struct preset {
    const char *name;
    uint32_t batch_tokens, max_running, itl_target_ms, n_parallel;
} presets[] = {{"low-latency", 256, 32, 20, 4},
               {"balanced", 512, 256, 0, 16},
               {"throughput", 2048, 512, 1000, 64}};
#define N_PRESETS (sizeof presets / sizeof presets[0])

static const struct preset *find_preset(const char *name)
{
    for (size_t i = 0; i < N_PRESETS; i++)
        if (strcmp(name, presets[i].name) == 0)
            return &presets[i];
    return NULL;
}

/* What was not given has no value yet. */
static void apply_preset(struct serve_options *o)
{
    const struct preset *p = o->preset ? o->preset : find_preset("balanced");
    struct engine_config *c = &o->engine;
    if (c->batch_tokens == 0)
        c->batch_tokens = p->batch_tokens;
    if (c->max_running == 0)
        c->max_running = p->max_running;
    if (!o->itl_given)
        c->itl_target_ms = p->itl_target_ms;
    if (o->batches.n_parallel == 0)
        o->batches.n_parallel = p->n_parallel;
}

static error_t parse_engine(
    int key, char *arg, struct argp_state *s, struct engine_config *c, bool *itl_given)
{
    switch (key) {
    case KEY_THREADS:
        c->n_threads = (uint32_t)cli_number(s, "--threads", arg, 1, 1024);
        return 0;
    case KEY_CONTEXT:
        c->n_ctx = (uint32_t)cli_number(s, "--context", arg, 2, 1 << 26);
        return 0;
    case KEY_POOLING:
        if (pooling_parse(arg, &c->pooling) != OK)
            argp_error(s, "--pooling: '%s' is not mean, cls, last or none", arg);
        return 0;
    case KEY_KV_MEMORY:
        c->kv_bytes = cli_size(s, "--kv-memory", arg);
        return 0;
    case KEY_KV_TYPE:
        c->kv_type = cli_kv_type(s, arg);
        return 0;
    case KEY_MAX_RUNNING:
        c->max_running = (uint32_t)cli_number(s, "--max-running", arg, 1, 1 << 16);
        return 0;
    case KEY_MAX_QUEUE:
        c->max_queue = (uint32_t)cli_number(s, "--max-queue", arg, 0, 1 << 20);
        return 0;
    case KEY_BATCH_TOKENS:
        c->batch_tokens = (uint32_t)cli_number(s, "--batch-tokens", arg, 1, 1 << 16);
        return 0;
    case KEY_OVERCOMMIT:
        c->overcommit = cli_real(s, "--overcommit", arg, 0.0, 1.0);
        return 0;
    case KEY_HOST_CACHE:
        c->host_cache_bytes = cli_size(s, "--host-cache", arg);
        return 0;
    case KEY_CACHE_DIR:
        if (arg[0] == '\0')
            argp_error(s, "--cache-dir: the name is empty");
        c->cache_dir = arg;
        return 0;
    case KEY_CACHE_DISK:
        c->cache_bytes = cli_size(s, "--cache-disk", arg);
        return 0;
    case KEY_BATCH_WINDOW:
        c->batch_window_ms = (uint32_t)cli_number(s, "--batch-window-ms", arg, 0, 10000);
        return 0;
    case KEY_ITL_TARGET:
        *itl_given = true;
        c->itl_target_ms = (uint32_t)cli_number(s, "--itl-target-ms", arg, 0, 1 << 20);
        return 0;
    default:
        return cli_device_option(key, arg, s, &c->device);
    }
}

/* SCHEME://HOST[:PORT] as browsers write it, or "*", or "localhost" for this machine's. */
static bool is_origin(const char *s)
{
    const char *host = strstr(s, "://");
    if (strcmp(s, "*") == 0 || strcmp(s, "localhost") == 0)
        return true;
    return host && host != s && host[3] && !strpbrk(host + 3, "/ \t\"<>\\") && strlen(s) <= 256;
}

static void add_origin(struct serve_options *o, const char *arg)
{
    o->cors_origins =
        mem_realloc(o->cors_origins, (o->n_cors_origins + 1) * sizeof *o->cors_origins);
    o->cors_origins[o->n_cors_origins++] = arg;
}

static void must_name(struct argp_state *s, const char *flag, const char *arg)
{
    if (arg[0] == '\0')
        argp_error(s, "%s: the file's name is empty", flag);
}

/* Who may, and what is written down of it. */
static error_t parse_access(int key, char *arg, struct argp_state *s, struct serve_options *o)
{
    switch (key) {
    case KEY_API_KEYS:
        must_name(s, "--api-keys", arg);
        o->api_keys_file = arg;
        return 0;
    case KEY_ADMIN_KEY_FILE:
        must_name(s, "--admin-key-file", arg);
        o->admin_key_file = arg;
        return 0;
    case KEY_TLS_CERT:
        must_name(s, "--tls-cert", arg);
        o->tls_cert_file = arg;
        return 0;
    case KEY_TLS_KEY:
        must_name(s, "--tls-key", arg);
        o->tls_key_file = arg;
        return 0;
    case KEY_CORS_ORIGIN:
        if (!is_origin(arg))
            argp_error(
                s, "--cors-origin: '%s' is not like https://host:port, nor localhost, nor *", arg);
        add_origin(o, arg);
        return 0;
    case KEY_ACCESS_LOG:
        o->access_log = arg;
        return 0;
    case KEY_SLOW_LOG:
        o->log_slow = true;
        o->slow_ms = (uint32_t)cli_number(s, "--slow-log", arg, 0, 86400000);
        return 0;
    default:
        return parse_engine(key, arg, s, &o->engine, &o->itl_given);
    }
}

static void add_default(struct serve_options *o, const char *name, double value)
{
    buf_printf(&o->defaults, "%s\"%s\":%.9g", o->defaults.len ? "," : "", name, value);
}

static void add_whole(struct serve_options *o, const char *name, long long value)
{
    buf_printf(&o->defaults, "%s\"%s\":%lld", o->defaults.len ? "," : "", name, value);
}

/* A whole number that may be below 0. */
static long long whole(struct argp_state *s, const char *flag, const char *arg, long long lo)
{
    char *end;
    errno = 0;
    long long v = strtoll(arg, &end, 10);
    if (errno || !isdigit((unsigned char)arg[*arg == '-']) || *end || v < lo || v > INT32_MAX)
        argp_error(s, "%s: '%s' is not a whole number from %lld to %d", flag, arg, lo, INT32_MAX);
    return v;
}

static bool on_or_off(struct argp_state *s, const char *flag, const char *arg)
{
    if (strcmp(arg, "on") != 0 && strcmp(arg, "off") != 0)
        argp_error(s, "%s: '%s' is not on or off", flag, arg);
    return strcmp(arg, "on") == 0;
}

/* What requests are taken to say that do not. */
static error_t parse_default(int key, char *arg, struct argp_state *s, struct serve_options *o)
{
    switch (key) {
    case KEY_TEMPERATURE:
        add_default(o, "temperature", cli_real(s, "--temperature", arg, 0.0, 2.0));
        return 0;
    case KEY_TOP_P:
        add_default(o, "top_p", cli_real(s, "--top-p", arg, 0.0, 1.0));
        return 0;
    case KEY_TOP_K:
        add_whole(o, "top_k", whole(s, "--top-k", arg, 0));
        return 0;
    case KEY_MIN_P:
        add_default(o, "min_p", cli_real(s, "--min-p", arg, 0.0, 1.0));
        return 0;
    case KEY_REPEAT_PENALTY:
        add_default(o, "repeat_penalty", cli_real(s, "--repeat-penalty", arg, 0.01, 100.0));
        return 0;
    case KEY_REPEAT_LAST_N:
        add_whole(o, "repeat_last_n", whole(s, "--repeat-last-n", arg, -1));
        return 0;
    case KEY_SEED:
        add_whole(o, "seed", whole(s, "--seed", arg, 0));
        return 0;
    case KEY_MAX_TOKENS:
        o->max_tokens = (uint32_t)cli_number(s, "--max-tokens", arg, 1, INT32_MAX);
        return 0;
    case KEY_VERBOSE:
        buf_printf(&o->defaults,
                   "%s\"verbose\":%s",
                   o->defaults.len ? "," : "",
                   on_or_off(s, "--verbose", arg) ? "true" : "false");
        return 0;
    default:
        return parse_access(key, arg, s, o);
    }
}

/* Files of requests may be larger than other bodies; a little more is for what a form has around
 * one, so that a file that is too large is told so and not only cut off. */
static void take_uploads(struct serve_options *o)
{
    uint64_t largest = o->batches.max_file_bytes ? o->batches.max_file_bytes : BATCHES_FILE_BYTES;
    o->http.n_workers++; /* while one waits for the disk with an upload */
    o->http.max_form_bytes = (size_t)largest + (64u << 10);
}

/* Two names that templates have for it. */
static void apply_reasoning(struct serve_options *o)
{
    if (o->reasoning && strcmp(o->reasoning, "auto") != 0) {
        const char *on = strcmp(o->reasoning, "on") == 0 ? "true" : "false";
        buf_printf(&o->defaults,
                   "%s\"chat_template_kwargs\":{\"enable_thinking\":%s,\"thinking\":%s}",
                   o->defaults.len ? "," : "",
                   on,
                   on);
    }
}

/* What fits together. */
static void check_options(const struct serve_options *o, struct argp_state *s)
{
    if (o->engine.cache_bytes && !o->engine.cache_dir)
        argp_error(s, "--cache-disk: says how much --cache-dir may take, which is not given");
    if (o->api_key && o->api_keys_file)
        argp_error(s, "--api-key and --api-keys: give one of them");
    if (!o->tls_cert_file != !o->tls_key_file)
        argp_error(s, "--tls-cert and --tls-key: give both");
    if (o->chat_template && o->chat_template_file)
        argp_error(s, "--chat-template and --chat-template-file: give one of them");
}

static void take_names(struct argp_state *s,
                       const char *flag,
                       const char *arg,
                       struct serve_names *names)
{
    struct err_info e;
    serve_names_deinit(names); /* the last one given holds */
    if (serve_names_parse(arg, names, &e) != OK)
        argp_error(s, "%s: %s", flag, e.text);
}

/* A single word that is no template's name is a misspelt one, and not a template. */
static void check_template(struct argp_state *s, const char *arg)
{
    struct buf names = {0};
    if (strcmp(arg, "none") == 0 || chat_builtin_source(arg) || strpbrk(arg, " {\n"))
        return;
    for (size_t i = 0; chat_builtin_name(i); i++)
        buf_printf(&names, " %s", chat_builtin_name(i));
    argp_error(s, "--chat-template: there is no '%s', but: none%s", arg, buf_cstr(&names));
    buf_deinit(&names);
}

/* What the model is called, and how its chats are written and read. */
static error_t parse_model(int key, char *arg, struct argp_state *s, struct serve_options *o)
{
    switch (key) {
    case KEY_ALIAS:
        take_names(s, "--alias", arg, &o->aliases);
        return 0;
    case KEY_TAGS:
        take_names(s, "--tags", arg, &o->tags);
        return 0;
    case KEY_ANY_MODEL:
        if (arg && strcmp(arg, "yes") != 0 && strcmp(arg, "no") != 0)
            argp_error(s, "--any-model: '%s' is not yes or no", arg);
        o->any_model = !arg || strcmp(arg, "yes") == 0;
        return 0;
    case KEY_CHAT_TEMPLATE:
        o->chat_template_file = arg;
        return 0;
    case KEY_CHAT_TEMPLATE_NAME:
        check_template(s, arg);
        o->chat_template = arg;
        return 0;
    case KEY_REASONING:
        if (strcmp(arg, "on") != 0 && strcmp(arg, "off") != 0 && strcmp(arg, "auto") != 0)
            argp_error(s, "--reasoning: '%s' is not on, off or auto", arg);
        o->reasoning = arg;
        return 0;
    case KEY_TOOL_FORMAT:
        o->tool_format = arg;
        if (strcmp(arg, "auto") != 0 && strcmp(arg, "none") != 0 && !reply_format_find(arg))
            argp_error(s, "--tool-format: there is no format '%s'", arg);
        return 0;
    case KEY_REASONING_FORMAT:
        o->reasoning_format = arg;
        if (strcmp(arg, "auto") != 0 && strcmp(arg, "none") != 0 && !reply_thoughts_find(arg))
            argp_error(s, "--reasoning-format: there is no format '%s'", arg);
        return 0;
    default:
        return parse_default(key, arg, s, o);
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *s)
{
    struct serve_options *o = s->input;
    switch (key) {
    case 'm':
        o->model = arg;
        return 0;
    case KEY_EMBEDDINGS:
        o->no_embeddings = !on_or_off(s, "--embeddings", arg);
        return 0;
    case KEY_HOST:
        o->http.host = arg;
        return 0;
    case KEY_PORT:
        o->http.port = (uint16_t)cli_number(s, "--port", arg, 0, 65535);
        return 0;
    case KEY_API_PREFIX:
        if (arg[0] != '/' || arg[1] == '\0' || arg[strlen(arg) - 1] == '/' || strchr(arg, '?'))
            argp_error(s, "--api-prefix: '%s' is not like /path", arg);
        o->api_prefix = arg;
        return 0;
    case KEY_SLOTS:
        o->no_slots = !on_or_off(s, "--slots", arg);
        return 0;
    case KEY_API_KEY:
        if (arg[0] == '\0')
            argp_error(s, "--api-key: the key is empty");
        o->api_key = arg;
        return 0;
    case KEY_MAX_BODY:
        o->http.max_body_bytes = cli_size(s, "--max-body", arg);
        return 0;
    case KEY_MAX_CONNECTIONS:
        o->http.max_connections = (uint32_t)cli_number(s, "--max-connections", arg, 1, 1 << 20);
        return 0;
    case KEY_PRESET:
        o->preset = find_preset(arg);
        if (!o->preset)
            argp_error(s, "--preset: '%s' is not low-latency, balanced or throughput", arg);
        return 0;
    case KEY_BATCH_DIR:
        if (arg[0] == '\0')
            argp_error(s, "--batch-dir: the name is empty");
        o->batches.dir = arg;
        return 0;
    case KEY_BATCH_PARALLEL:
        o->batches.n_parallel = (uint32_t)cli_number(s, "--batch-parallel", arg, 1, 4096);
        return 0;
    case KEY_BATCH_FILE:
        o->batches.max_file_bytes = cli_size(s, "--batch-file", arg);
        return 0;
    case KEY_DRAIN_TIMEOUT:
        o->drain_timeout_s = (uint32_t)cli_number(s, "--drain-timeout", arg, 0, 86400);
        return 0;
    case ARGP_KEY_END:
        apply_preset(o);
        apply_reasoning(o);
        check_options(o, s);
        if (o->batches.dir)
            take_uploads(o);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(s, "unexpected argument '%s'", arg);
        return 0;
    default:
        return parse_model(key, arg, s, o);
    }
}

/* Does the server let everybody in, or speak openly, without the option? */
static bool is_guard(int key)
{
    return key == KEY_API_KEY || key == KEY_API_KEYS || key == KEY_ADMIN_KEY_FILE ||
           key == KEY_TLS_CERT || key == KEY_TLS_KEY;
}

/* Is a flag without a value set? Ends the process, as for a wrong option, on any other word. */
static bool is_set(const char *env, const char *value)
{
    static const char *const words[] = {"1", "on", "true", "0", "off", "false"};
    for (size_t i = 0; i < 6; i++)
        if (strcmp(value, words[i]) == 0)
            return i < 3;
    fprintf(stderr, "weir: %s=%s: not 1, on, true, 0, off or false\n", env, value);
    exit(EXIT_USAGE);
}

/* "--max-queue=5" if WEIR_MAX_QUEUE=5 is set, "--gpu-zero-buffers" if WEIR_GPU_ZERO_BUFFERS=1 is,
 * else NULL. Set to nothing is not set, as compose files have it, but for what guards the server:
 * an empty secret is a mistake. malloc'd. */
static char *flag_from_env(const struct argp_option *o)
{
    const char *name = o->name;
    char env[64] = "WEIR_";
    size_t n = 5;
    for (const char *c = name; *c && n < sizeof env - 1; c++)
        env[n++] = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    env[n] = '\0';
    const char *value = getenv(env);
    if (!value || (!*value && !is_guard(o->key)) || (!o->arg && !is_set(env, value)))
        return NULL;
    size_t size = strlen(name) + strlen(value) + 4;
    char *flag = mem_alloc(size);
    snprintf(flag, size, "--%s%s%s", name, o->arg ? "=" : "", o->arg ? value : "");
    return flag;
}

void serve_parse(int argc, char **argv, struct serve_options *o)
{
    const struct argp argp = {.options = serve_flags, .parser = parse_option, .doc = serve_doc};
    *o = (struct serve_options){.tool_format = "auto",
                                .reasoning_format = "auto",
                                .drain_timeout_s = 30,
                                .engine = engine_config_default(),
                                .http = {.host = "127.0.0.1",
                                         .port = 8080,
                                         .max_connections = 8192,
                                         .max_body_bytes = (size_t)16 << 20,
                                         .max_header_bytes = (size_t)32 << 10,
                                         .n_workers = 2, /* one slow schema leaves the other */
                                         .keepalive_comment_ms = 15000}};
    /* the environment's flags go first, so that those given later win */
    size_t n_options = 0;
    while (serve_flags[n_options].name || serve_flags[n_options].doc)
        n_options++;
    char **all = mem_zalloc((size_t)argc + n_options + 1, sizeof *all);
    o->env_argv = mem_zalloc(n_options + 1, sizeof *o->env_argv);
    int n = 0;
    all[n++] = argv[0];
    for (size_t i = 0; i < n_options; i++) {
        char *flag = serve_flags[i].name ? flag_from_env(&serve_flags[i]) : NULL;
        if (flag)
            all[n++] = o->env_argv[o->n_env++] = flag;
    }
    for (int i = 1; i < argc; i++)
        all[n++] = argv[i];
    o->engine.batch_tokens = o->engine.max_running = 0; /* until the preset is known */
    o->engine.progress = cli_progress;
    o->engine.progress_ctx = "loading";
    cli_parse(&argp, n, all, o);
    free(all);
}

void serve_options_deinit(struct serve_options *o)
{
    for (int i = 0; i < o->n_env; i++)
        free(o->env_argv[i]);
    free(o->env_argv);
    free(o->cors_origins);
    serve_names_deinit(&o->aliases);
    serve_names_deinit(&o->tags);
    buf_deinit(&o->defaults);
}
