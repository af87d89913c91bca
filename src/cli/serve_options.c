#include "cli/serve_options.h"

#include "base/mem.h"
#include "chat/reply.h"
#include "cli/cli.h"
#include "cli/device_options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ALIAS_BYTES 128

enum key {
    KEY_HOST = 256,
    KEY_PORT,
    KEY_THREADS,
    KEY_KV_MEMORY,
    KEY_KV_TYPE,
    KEY_CONTEXT,
    KEY_POOLING,
    KEY_EMBEDDINGS,
    KEY_MAX_RUNNING,
    KEY_MAX_QUEUE,
    KEY_BATCH_TOKENS,
    KEY_ITL_TARGET,
    KEY_OVERCOMMIT,
    KEY_HOST_CACHE,
    KEY_CACHE_DIR,
    KEY_CACHE_DISK,
    KEY_ALIAS,
    KEY_ANY_MODEL,
    KEY_CHAT_TEMPLATE,
    KEY_REASONING,
    KEY_TOOL_FORMAT,
    KEY_REASONING_FORMAT,
    KEY_API_KEY,
    KEY_API_KEYS,
    KEY_ADMIN_KEY_FILE,
    KEY_TLS_CERT,
    KEY_TLS_KEY,
    KEY_CORS_ORIGIN,
    KEY_ACCESS_LOG,
    KEY_SLOW_LOG,
    KEY_DRAIN_TIMEOUT,
    KEY_MAX_BODY,
    KEY_MAX_CONNECTIONS,
    KEY_PRESET,
    KEY_BATCH_DIR,
    KEY_BATCH_PARALLEL,
    KEY_BATCH_FILE,
    KEY_TEMPERATURE,
    KEY_TOP_P,
    KEY_TOP_K,
    KEY_MIN_P,
    KEY_REPEAT_PENALTY,
    KEY_REPEAT_LAST_N,
    KEY_SEED,
};

static const struct argp_option options[] = {
    {"model", 'm', "FILE", 0, "GGUF file (default: the built-in model)", 0},
    {"alias", KEY_ALIAS, "NAME", 0, "the model's id for clients (default: from the file)", 0},
    {"any-model",
     KEY_ANY_MODEL,
     "yes|no",
     OPTION_ARG_OPTIONAL,
     "answer requests whatever model they name (default: no)",
     0},
    {"chat-template-file",
     KEY_CHAT_TEMPLATE,
     "FILE",
     0,
     "a chat template (Jinja) in the place of the model's own",
     0},
    {"reasoning",
     KEY_REASONING,
     "on|off|auto",
     0,
     "whether the template has the model reason where a request does not say (default auto: as the "
     "template has it)",
     0},
    {"tool-format",
     KEY_TOOL_FORMAT,
     "NAME",
     0,
     "how the model writes calls of tools: auto (by its chat template), none, or a name that "
     "docs/API.md lists (default auto)",
     0},
    {"reasoning-format",
     KEY_REASONING_FORMAT,
     "NAME",
     0,
     "how it marks reasoning: auto, none, or a name (default auto)",
     0},
    {"pooling",
     KEY_POOLING,
     "TYPE",
     0,
     "embeddings: mean, cls or last (default: as the file says)",
     0},
    {"embeddings", KEY_EMBEDDINGS, "on|off", 0, "serve embeddings and reranking (default on)", 0},
    {0, 0, 0, 0, "Network:", 1},
    {"host", KEY_HOST, "ADDR", 0, "address to listen on (default 127.0.0.1)", 0},
    {"port", KEY_PORT, "N", 0, "port; 0 lets the system choose (default 8080)", 0},
    {"api-key", KEY_API_KEY, "KEY", 0, "ask clients for this bearer token", 0},
    {"api-keys",
     KEY_API_KEYS,
     "FILE",
     0,
     "clients' keys with their limits, as JSON (docs/API.md); read again on SIGHUP",
     0},
    {"admin-key-file",
     KEY_ADMIN_KEY_FILE,
     "FILE",
     0,
     "its first line is the key that /metrics and /v1/kv want; read again on SIGHUP",
     0},
    {"tls-cert",
     KEY_TLS_CERT,
     "FILE",
     0,
     "serve TLS with this certificate and chain (PEM); read again on SIGHUP",
     0},
    {"tls-key", KEY_TLS_KEY, "FILE", 0, "the certificate's key (PEM)", 0},
    {"cors-origin",
     KEY_CORS_ORIGIN,
     "ORIGIN",
     0,
     "web pages of this origin may call (repeatable; localhost: those of this machine; *: all; "
     "default: none)",
     0},
    {"access-log",
     KEY_ACCESS_LOG,
     "FILE",
     0,
     "a line of JSON for each request, without contents; -: stdout; opened again on SIGHUP",
     0},
    {"slow-log",
     KEY_SLOW_LOG,
     "MS",
     0,
     "log the timeline of requests that take so long (to the access log, or stderr)",
     0},
    {"max-body",
     KEY_MAX_BODY,
     "SIZE",
     0,
     "largest request body, but for files of requests (default 16M)",
     0},
    {"max-connections", KEY_MAX_CONNECTIONS, "N", 0, "open connections (default 8192)", 0},
    {"drain-timeout",
     KEY_DRAIN_TIMEOUT,
     "SECONDS",
     0,
     "how long SIGTERM lets requests finish (default 30)",
     0},
    {0, 0, 0, 0, "Compute and memory:", 2},
    CLI_DEVICE_OPTIONS(0),
    {"threads", KEY_THREADS, "N", 0, "worker threads (default: one a core)", 0},
    {"context", KEY_CONTEXT, "N", 0, "longest prompt + answer (default: as trained)", 0},
    {"kv-memory",
     KEY_KV_MEMORY,
     "SIZE",
     0,
     "memory for the KV cache (default: a quarter of RAM, at most 4G)",
     0},
    {"kv-type", KEY_KV_TYPE, "TYPE", 0, "f16, f32, bf16 or q8_0 (default f16)", 0},
    {"host-cache",
     KEY_HOST_CACHE,
     "SIZE",
     0,
     "RAM that keeps computed prefixes when the KV cache needs their place (default: none)",
     0},
    {"cache-dir",
     KEY_CACHE_DIR,
     "DIR",
     0,
     "keep computed prefixes on disk too, where they survive a restart (default: none)",
     0},
    {"cache-disk", KEY_CACHE_DISK, "SIZE", 0, "disk that --cache-dir may take (default 8G)", 0},
    {0, 0, 0, 0, "Batches in the background:", 3},
    {"batch-dir",
     KEY_BATCH_DIR,
     "DIR",
     0,
     "where /v1/files and /v1/batches keep what they have (default: none, and no such routes)",
     0},
    {"batch-parallel",
     KEY_BATCH_PARALLEL,
     "N",
     0,
     "requests of batches under way at a time (default 16)",
     0},
    {"batch-file", KEY_BATCH_FILE, "SIZE", 0, "largest file of requests (default 100M)", 0},
    {0, 0, 0, 0, "Scheduling:", 4},
    {"preset",
     KEY_PRESET,
     "NAME",
     0,
     "low-latency, balanced or throughput (default balanced): sets --batch-tokens, --max-running, "
     "--itl-target-ms and --batch-parallel where they are not given",
     0},
    {"max-running", KEY_MAX_RUNNING, "N", 0, "sequences computed together (default 256)", 0},
    {"max-queue", KEY_MAX_QUEUE, "N", 0, "requests waiting beyond them (default 2048)", 0},
    {"batch-tokens", KEY_BATCH_TOKENS, "N", 0, "tokens in one step (default 512)", 0},
    {"itl-target-ms",
     KEY_ITL_TARGET,
     "MS",
     0,
     "how long a step may keep running answers waiting (default: automatic)",
     0},
    {"overcommit",
     KEY_OVERCOMMIT,
     "SHARE",
     0,
     "how much of the longest possible answers admission does not count on, 0 to 1; at 0 those who "
     "run "
     "never lack memory (default 0.9)",
     0},
    {0, 0, 0, 0, "Requests that do not say (default: as their API has it, docs/API.md):", 5},
    {"temperature", KEY_TEMPERATURE, "T", 0, "0 to 2; 0 always takes the likeliest", 0},
    {"top-p", KEY_TOP_P, "P", 0, "0 to 1; 1 is off", 0},
    {"top-k", KEY_TOP_K, "N", 0, "0 is off", 0},
    {"min-p", KEY_MIN_P, "P", 0, "0 to 1; 0 is off", 0},
    {"repeat-penalty", KEY_REPEAT_PENALTY, "X", 0, "0.01 to 100; 1 is off", 0},
    {"repeat-last-n", KEY_REPEAT_LAST_N, "N", 0, "tokens that penalties look at; -1: all", 0},
    {"seed", KEY_SEED, "N", 0, "of the random draws", 0},
    {0},
};

static const char doc[] =
    "Serve a model over HTTP, with the OpenAI API, to many clients at once. Every flag can also be "
    "set in the environment: --max-queue as WEIR_MAX_QUEUE."
    "\vExamples:\n"
    "  weir serve\n"
    "  weir serve -m llama-3.2-1b.Q8_0.gguf --port 9000 --kv-memory 2G\n"
    "  WEIR_API_KEY=secret weir serve -m model.gguf --host 0.0.0.0\n"
    "  weir serve --api-keys keys.json --tls-cert cert.pem --tls-key key.pem --access-log -\n\n"
    "  curl http://127.0.0.1:8080/v1/chat/completions -d \\\n"
    "    '{\"messages\": [{\"role\": \"user\", \"content\": \"What is 2 + 3?\"}]}'";

/* What --preset sets. An inter-token target of 0 is automatic: twice a quiet step. */
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
            argp_error(s, "--pooling: '%s' is not mean, cls or last", arg);
        return 0;
    case KEY_KV_MEMORY:
        c->kv_bytes = cli_size(s, "--kv-memory", arg);
        if (c->kv_bytes == 0)
            argp_error(s, "--kv-memory: must be more than 0");
        return 0;
    case KEY_KV_TYPE:
        if (kv_type_parse(arg, &c->kv_type) != OK)
            argp_error(s, "--kv-type: '%s' is not f16, f32, bf16 or q8_0", arg);
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
        if (c->host_cache_bytes == 0)
            argp_error(s, "--host-cache: must be more than 0");
        return 0;
    case KEY_CACHE_DIR:
        if (arg[0] == '\0')
            argp_error(s, "--cache-dir: the name is empty");
        c->cache_dir = arg;
        return 0;
    case KEY_CACHE_DISK:
        c->cache_bytes = cli_size(s, "--cache-disk", arg);
        if (c->cache_bytes == 0)
            argp_error(s, "--cache-disk: must be more than 0");
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

/* Who may, and what is written down of it. */
static error_t parse_access(int key, char *arg, struct argp_state *s, struct serve_options *o)
{
    switch (key) {
    case KEY_API_KEYS:
        o->api_keys_file = arg;
        return 0;
    case KEY_ADMIN_KEY_FILE:
        o->admin_key_file = arg;
        return 0;
    case KEY_TLS_CERT:
        o->tls_cert_file = arg;
        return 0;
    case KEY_TLS_KEY:
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
    if (errno || end == arg || *end || v < lo || v > INT32_MAX)
        argp_error(s, "%s: '%s' is not a whole number from %lld to %d", flag, arg, lo, INT32_MAX);
    return v;
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
    default:
        return parse_access(key, arg, s, o);
    }
}

/* Files of requests may be larger than other bodies; a little more is for what a form has around
 * one, so that a file that is too large is told so and not only cut off. */
static void take_uploads(struct serve_options *o)
{
    uint64_t largest = o->batches.max_file_bytes ? o->batches.max_file_bytes : (uint64_t)100 << 20;
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
}

static error_t parse_option(int key, char *arg, struct argp_state *s)
{
    struct serve_options *o = s->input;
    switch (key) {
    case 'm':
        o->model = arg;
        return 0;
    case KEY_ALIAS:
        o->alias = arg;
        if (strlen(arg) > MAX_ALIAS_BYTES || arg[0] == '\0')
            argp_error(s, "--alias: must have 1 to %d bytes", MAX_ALIAS_BYTES);
        return 0;
    case KEY_ANY_MODEL:
        if (arg && strcmp(arg, "yes") != 0 && strcmp(arg, "no") != 0)
            argp_error(s, "--any-model: '%s' is not yes or no", arg);
        o->any_model = !arg || strcmp(arg, "yes") == 0;
        return 0;
    case KEY_CHAT_TEMPLATE:
        o->chat_template_file = arg;
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
    case KEY_EMBEDDINGS:
        o->no_embeddings = strcmp(arg, "off") == 0;
        if (!o->no_embeddings && strcmp(arg, "on") != 0)
            argp_error(s, "--embeddings: '%s' is not on or off", arg);
        return 0;
    case KEY_HOST:
        o->http.host = arg;
        return 0;
    case KEY_PORT:
        o->http.port = (uint16_t)cli_number(s, "--port", arg, 0, 65535);
        return 0;
    case KEY_API_KEY:
        if (arg[0] == '\0')
            argp_error(s, "--api-key: the key is empty");
        o->api_key = arg;
        return 0;
    case KEY_MAX_BODY:
        o->http.max_body_bytes = cli_size(s, "--max-body", arg);
        if (o->http.max_body_bytes == 0)
            argp_error(s, "--max-body: must be more than 0");
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
        if (o->batches.max_file_bytes == 0)
            argp_error(s, "--batch-file: must be more than 0");
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
        return parse_default(key, arg, s, o);
    }
}

/* "--max-queue=5" if WEIR_MAX_QUEUE=5 is set, else NULL. malloc'd. */
static char *flag_from_env(const char *name)
{
    char env[64] = "WEIR_";
    size_t n = 5;
    for (const char *c = name; *c && n < sizeof env - 1; c++)
        env[n++] = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    env[n] = '\0';
    const char *value = getenv(env);
    if (!value || !*value)
        return NULL;
    size_t size = strlen(name) + strlen(value) + 4;
    char *flag = mem_alloc(size);
    snprintf(flag, size, "--%s=%s", name, value);
    return flag;
}

void serve_parse(int argc, char **argv, struct serve_options *o)
{
    const struct argp argp = {.options = options, .parser = parse_option, .doc = doc};
    *o = (struct serve_options){.tool_format = "auto",
                                .reasoning_format = "auto",
                                .drain_timeout_s = 30,
                                .engine = engine_config_default(),
                                .http = {.host = "127.0.0.1",
                                         .port = 8080,
                                         .max_connections = 8192,
                                         .max_body_bytes = (size_t)16 << 20,
                                         .max_header_bytes = (size_t)32 << 10,
                                         .n_workers = 1,
                                         .keepalive_comment_ms = 15000}};
    /* the environment's flags go first, so that those given later win */
    size_t n_options = sizeof options / sizeof options[0];
    char **all = mem_zalloc((size_t)argc + n_options + 1, sizeof *all);
    o->env_argv = mem_zalloc(n_options + 1, sizeof *o->env_argv);
    int n = 0;
    all[n++] = argv[0];
    for (size_t i = 0; i + 1 < n_options; i++) {
        char *flag = options[i].name ? flag_from_env(options[i].name) : NULL;
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
    buf_deinit(&o->defaults);
}

void serve_model_id(const struct serve_options *o, const char *path, char *out, size_t cap)
{
    const char *slash = strrchr(path, '/');
    snprintf(out, cap, "%s", o->alias ? o->alias : slash ? slash + 1 : path);
    size_t n = strlen(out);
    if (!o->alias && n > 5 && strcmp(out + n - 5, ".gguf") == 0)
        out[n -= 5] = '\0';
    const size_t n_suffix = sizeof "-00001-of-00003" - 1; /* the first file of a split model */
    if (!o->alias && n > n_suffix && strncmp(out + n - n_suffix, "-00001-of-", 10) == 0)
        out[n - n_suffix] = '\0';
    for (char *c = out; *c && !o->alias; c++) { /* it appears in JSON and in URLs */
        if (!isalnum((unsigned char)*c) && !strchr("-._", *c))
            *c = '-';
    }
}
