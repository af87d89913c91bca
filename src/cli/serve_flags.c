#include "cli/serve_flags.h"

#include "base/mem.h"
#include "chat/builtin.h"
#include "chat/reply.h"
#include "cli/cli.h"
#include "cli/model_options.h"
#include "cli/serve_files.h"

#include <string.h>

/* --- flags that are read in a way of their own ------------------------------------------------ */

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

static void take_aliases(struct argp_state *s, const char *flag, const char *arg)
{
    struct serve_options *o = s->input;
    take_names(s, flag, arg, &o->aliases);
}

static void take_tags(struct argp_state *s, const char *flag, const char *arg)
{
    struct serve_options *o = s->input;
    take_names(s, flag, arg, &o->tags);
}

/* A single word that is no template's name is a misspelt one, and not a template. */
static void take_template(struct argp_state *s, const char *flag, const char *arg)
{
    struct serve_options *o = s->input;
    struct buf names = {0};
    o->chat_template = arg;
    if (strcmp(arg, "none") == 0 || chat_builtin_source(arg) || strpbrk(arg, " {\n"))
        return;
    for (size_t i = 0; chat_builtin_name(i); i++)
        buf_printf(&names, " %s", chat_builtin_name(i));
    argp_error(s, "%s: there is no '%s', but: none%s", flag, arg, buf_cstr(&names));
    buf_deinit(&names);
}

static void take_reasoning(struct argp_state *s, const char *flag, const char *arg)
{
    struct serve_options *o = s->input;
    if (strcmp(arg, "on") != 0 && strcmp(arg, "off") != 0 && strcmp(arg, "auto") != 0)
        argp_error(s, "%s: '%s' is not on, off or auto", flag, arg);
    o->reasoning = arg;
}

static void take_tool_format(struct argp_state *s, const char *flag, const char *arg)
{
    struct serve_options *o = s->input;
    if (strcmp(arg, "auto") != 0 && strcmp(arg, "none") != 0 && !reply_format_find(arg))
        argp_error(s, "%s: there is no format '%s'", flag, arg);
    o->tool_format = arg;
}

static void take_reasoning_format(struct argp_state *s, const char *flag, const char *arg)
{
    struct serve_options *o = s->input;
    if (strcmp(arg, "auto") != 0 && strcmp(arg, "none") != 0 && !reply_thoughts_find(arg))
        argp_error(s, "%s: there is no format '%s'", flag, arg);
    o->reasoning_format = arg;
}

static void take_pooling(struct argp_state *s, const char *flag, const char *arg)
{
    struct serve_options *o = s->input;
    if (pooling_parse(arg, &o->engine.pooling) != OK)
        argp_error(s, "%s: '%s' is not mean, cls, last or none", flag, arg);
}

static void take_prefix(struct argp_state *s, const char *flag, const char *arg)
{
    struct serve_options *o = s->input;
    static const char plain[] = "/-._~!$&'()*+,;=:@0123456789"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    if (arg[0] != '/' || arg[1] == '\0' || arg[strlen(arg) - 1] == '/' || arg[strspn(arg, plain)] ||
        strstr(arg, "//") || strstr(arg, "/."))
        argp_error(s, "%s: '%s' is not like /path", flag, arg);
    o->api_prefix = arg;
}

static void take_api_key(struct argp_state *s, const char *flag, const char *arg)
{
    struct serve_options *o = s->input;
    if (arg[0] == '\0')
        argp_error(s, "%s: the key is empty", flag);
    if (!serve_is_key(arg))
        argp_error(s, "%s: the key must be visible ASCII without blanks", flag);
    o->api_key = arg;
}

/* SCHEME://HOST[:PORT] as browsers write it, or "*", or "localhost" for this machine's. */
static bool is_origin(const char *s)
{
    const char *host = strstr(s, "://");
    if (strcmp(s, "*") == 0 || strcmp(s, "localhost") == 0)
        return true;
    return host && host != s && host[3] && !strpbrk(host + 3, "/ \t\"<>\\") && strlen(s) <= 256;
}

static void take_origin(struct argp_state *s, const char *flag, const char *arg)
{
    struct serve_options *o = s->input;
    if (!is_origin(arg))
        argp_error(s, "%s: '%s' is not like https://host:port, nor localhost, nor *", flag, arg);
    o->cors_origins =
        mem_realloc(o->cors_origins, (o->n_cors_origins + 1) * sizeof *o->cors_origins);
    o->cors_origins[o->n_cors_origins++] = arg;
}

static void take_slow_log(struct argp_state *s, const char *flag, const char *arg)
{
    struct serve_options *o = s->input;
    o->log_slow = true;
    o->slow_ms = (uint32_t)cli_number(s, flag, arg, 0, 86400000);
}

static void take_kv_type(struct argp_state *s, const char *flag, const char *arg)
{
    struct serve_options *o = s->input;
    (void)flag;
    o->engine.kv_type = cli_kv_type(s, arg);
}

static void take_preset(struct argp_state *s, const char *flag, const char *arg)
{
    struct serve_options *o = s->input;
    o->preset = serve_preset_find(arg);
    if (!o->preset)
        argp_error(s, "%s: '%s' is not low-latency, balanced or throughput", flag, arg);
}

static void take_itl_target(struct argp_state *s, const char *flag, const char *arg)
{
    struct serve_options *o = s->input;
    o->itl_given = true;
    o->engine.itl_target_ms = (uint32_t)cli_number(s, flag, arg, 0, 1 << 20);
}

/* --- all of them ------------------------------------------------------------------------------ */

#define INTO(member)                                                                               \
    .at = offsetof(struct serve_options, member),                                                  \
    .size = sizeof(((struct serve_options *)0)->member)
#define NUMBER(member, least, most) .kind = FLAG_NUMBER, INTO(member), .lo = (least), .hi = (most)
#define SIZE(member) .kind = FLAG_SIZE, INTO(member)
#define REAL(member, least, most) .kind = FLAG_REAL, INTO(member), .lo = (least), .hi = (most)
#define TEXT(member) .kind = FLAG_TEXT, INTO(member)
#define GUARD(member, why) TEXT(member), .empty = (why), .guard = true
#define NO_FILE "the file's name is empty"
#define SWITCH(member) .kind = FLAG_SWITCH, INTO(member)
#define UNLESS(member) .kind = FLAG_UNLESS, INTO(member)
#define DEVICE(device_key) .kind = FLAG_DEVICE, .key = (device_key)
#define DEFAULT_REAL(least, most) .kind = FLAG_DEFAULT_REAL, .lo = (least), .hi = (most)
#define DEFAULT_WHOLE(least, most) .kind = FLAG_DEFAULT_WHOLE, .lo = (least), .hi = (most)
#define TAKE(fn) .take = (fn)

const struct serve_flag serve_flags[] = {
    {"model", "FILE", "GGUF file (default: the built-in model)", TEXT(model), .key = 'm'},
    {"alias",
     "NAME[,NAME...]",
     "what clients call the model; the first in the alphabet is its id (default: from the file)",
     TAKE(take_aliases)},
    {"tags", "TAG[,TAG...]", "shown with the model, and nothing else", TAKE(take_tags)},
    {"any-model",
     "on|off",
     "answer requests whatever model they name (default off)",
     SWITCH(any_model),
     .flags = OPTION_ARG_OPTIONAL},
    {"chat-template",
     "NAME|TEXT",
     "chatml, llama3 or another that docs/API.md lists, or a template's text, in the place of the "
     "model's own; none: chats are refused (default: the model's own, chatml where it has none)",
     TAKE(take_template),
     .instead = "chat-template-file"},
    {"chat-template-file",
     "FILE",
     "the same from a file (Jinja)",
     TEXT(chat_template_file),
     .instead = "chat-template"},
    {"reasoning",
     "on|off|auto",
     "whether the template has the model reason where a request does not say (default auto: as the "
     "template has it)",
     TAKE(take_reasoning)},
    {"tool-format",
     "NAME",
     "how the model writes calls of tools: auto (by its chat template), none, or a name that "
     "docs/API.md lists (default auto)",
     TAKE(take_tool_format)},
    {"reasoning-format",
     "NAME",
     "how it marks reasoning: auto, none, or a name (default auto)",
     TAKE(take_reasoning_format)},
    {"pooling",
     "TYPE",
     "embeddings: mean, cls, last, or none: one of each token (default: as the file says)",
     TAKE(take_pooling)},
    {"embeddings", "on|off", "serve embeddings and reranking (default on)", UNLESS(no_embeddings)},
    {.doc = "Network:", .group = 1},
    {"host",
     "ADDR[,ADDR...]",
     "addresses to listen on, 16 at most (default 127.0.0.1)",
     TEXT(http.host),
     .empty = "the address is empty"},
    {"port", "N", "port; 0 lets the system choose (default 8080)", NUMBER(http.port, 0, 65535)},
    {"api-prefix", "/PATH", "all routes are below this path", TAKE(take_prefix)},
    {"slots", "on|off", "answer /slots (default on)", UNLESS(no_slots)},
    {"api-key",
     "KEY",
     "ask clients for this bearer token",
     TAKE(take_api_key),
     .guard = true,
     .instead = "api-keys"},
    {"api-keys",
     "FILE",
     "clients' keys with their limits, as JSON (docs/API.md); read again on SIGHUP",
     GUARD(api_keys_file, NO_FILE),
     .instead = "api-key"},
    {"admin-key-file",
     "FILE",
     "its first line is the key that /metrics, /v1/kv and the administrator's other routes "
     "(docs/API.md) want; read again on SIGHUP",
     GUARD(admin_key_file, NO_FILE)},
    {"tls-cert",
     "FILE",
     "serve TLS with this certificate and chain (PEM); read again on SIGHUP",
     GUARD(tls_cert_file, NO_FILE)},
    {"tls-key", "FILE", "the certificate's key (PEM)", GUARD(tls_key_file, NO_FILE)},
    {"cors-origin",
     "ORIGIN",
     "web pages of this origin may call (repeatable; localhost: those of this machine; *: all; "
     "default: none)",
     TAKE(take_origin)},
    {"access-log",
     "FILE",
     "a line of JSON for each request, without contents; -: stdout; opened again on SIGHUP",
     TEXT(access_log)},
    {"slow-log",
     "MS",
     "log the timeline of requests that take so long (to the access log, or stderr)",
     TAKE(take_slow_log)},
    {"max-body",
     "SIZE",
     "largest request body, but for files of requests (default 16M)",
     SIZE(http.max_body_bytes)},
    {"max-connections",
     "N",
     "open connections (default 8192)",
     NUMBER(http.max_connections, 1, 1000000)},
    {"drain-timeout",
     "SECONDS",
     "how long SIGTERM lets requests finish (default 30)",
     NUMBER(drain_timeout_s, 0, 86400)},
    {.doc = "Compute and memory:", .group = 2},
    {"device", "NAME", CLI_DEVICE_DOC, DEVICE(CLI_KEY_DEVICE)},
    {"gpu-memory", "SHARE|SIZE", CLI_GPU_MEMORY_DOC, DEVICE(CLI_KEY_GPU_MEMORY)},
    {"gpu-zero-buffers", NULL, CLI_GPU_ZERO_DOC, DEVICE(CLI_KEY_GPU_ZERO)},
    {"threads", "N", "worker threads (default: one a core)", NUMBER(engine.n_threads, 1, 1024)},
    {"context",
     "N",
     "longest prompt + answer (default: as trained)",
     NUMBER(engine.n_ctx, 2, MODEL_MAX_CONTEXT)},
    {"kv-memory",
     "SIZE",
     "memory for the KV cache (default: a quarter of RAM, at most 4G; on a GPU what is left of "
     "--gpu-memory)",
     SIZE(engine.kv_bytes)},
    {"kv-type", "TYPE", "f16, f32, bf16 or q8_0 (default f16)", TAKE(take_kv_type)},
    {"host-cache",
     "SIZE",
     "RAM that keeps computed prefixes when the KV cache needs their place (default: none)",
     SIZE(engine.host_cache_bytes)},
    {"cache-dir",
     "DIR",
     "keep computed prefixes on disk too, where they survive a restart (default: none)",
     TEXT(engine.cache_dir),
     .empty = "the name is empty"},
    {"cache-disk", "SIZE", "disk that --cache-dir may take (default 8G)", SIZE(engine.cache_bytes)},
    {.doc = "Batches in the background:", .group = 3},
    {"batch-dir",
     "DIR",
     "where /v1/files and /v1/batches keep what they have (default: none, and they answer 501)",
     TEXT(batches.dir),
     .empty = "the name is empty"},
    {"batch-parallel",
     "N",
     "requests of batches under way at a time (default 16)",
     NUMBER(batches.n_parallel, 1, 4096)},
    {"batch-file", "SIZE", "largest file of requests (default 100M)", SIZE(batches.max_file_bytes)},
    {.doc = "Scheduling:", .group = 4},
    {"preset",
     "NAME",
     "what --batch-tokens, --max-running, --itl-target-ms and --batch-parallel are where they are "
     "not given: low-latency (256, 32, 20, 4), balanced (512, 256, automatic, 16) or throughput "
     "(2048, 512, 1000, 64) (default balanced)",
     TAKE(take_preset)},
    {"max-running",
     "N",
     "sequences computed together (default 256)",
     NUMBER(engine.max_running, 1, 1 << 16)},
    {"max-queue",
     "N",
     "requests waiting beyond them (default 2048)",
     NUMBER(engine.max_queue, 0, 1 << 20)},
    {"batch-tokens",
     "N",
     "tokens in one step (default 512)",
     NUMBER(engine.batch_tokens, 1, 1 << 16)},
    {"itl-target-ms",
     "MS",
     "how long a step may keep running answers waiting (default: automatic)",
     TAKE(take_itl_target)},
    {"batch-window-ms",
     "MS",
     "how long a first request waits for others when nothing runs (default 0: it does not)",
     NUMBER(engine.batch_window_ms, 0, 10000)},
    {"draft-tokens", "N", CLI_DRAFT_DOC, NUMBER(engine.n_draft, 0, ENGINE_MAX_DRAFT)},
    {"overcommit",
     "SHARE",
     "how much of the longest possible answers admission does not count on, 0 to 1; at 0 those who "
     "run never lack memory (default 0.9)",
     REAL(engine.overcommit, 0.0, 1.0)},
    {.doc = "Requests that do not say (default: as their API has it, docs/API.md):", .group = 5},
    {"temperature", "T", "0 to 2; 0 always takes the likeliest", DEFAULT_REAL(0.0, 2.0)},
    {"top-p", "P", "0 to 1; 1 is off", DEFAULT_REAL(0.0, 1.0)},
    {"top-k", "N", "0 is off", DEFAULT_WHOLE(0, INT32_MAX)},
    {"min-p", "P", "0 to 1; 0 is off", DEFAULT_REAL(0.0, 1.0)},
    {"repeat-penalty", "X", "0.01 to 100; 1 is off", DEFAULT_REAL(0.01, 100.0)},
    {"repeat-last-n", "N", "tokens that penalties look at; -1: all", DEFAULT_WHOLE(-1, INT32_MAX)},
    {"model-sampling",
     "on|off",
     "where no flag here says: as the model's file advises (default on)",
     UNLESS(no_advice)},
    {"seed", "N", "of the random draws, 0 to 2^63 - 1", DEFAULT_WHOLE(0, 0)},
    {"max-tokens", "N", "the longest answer", NUMBER(max_tokens, 1, INT32_MAX)},
    {"verbose", "on|off", "add __verbose to answers (default off)", .kind = FLAG_DEFAULT_BOOL},
    {0},
};

const char serve_doc[] =
    "Serve a model over HTTP, with the OpenAI API, to many clients at once. Every flag can also be "
    "set in the environment: --max-queue as WEIR_MAX_QUEUE, and one without a value by 1 or 0; a "
    "flag that is given wins. One set to nothing counts as not set; for keys and certificates it "
    "is an error."
    "\vExamples:\n"
    "  weir serve\n"
    "  weir serve -m llama-3.2-1b.Q8_0.gguf --port 9000 --kv-memory 2G\n"
    "  WEIR_API_KEY=secret weir serve -m model.gguf --host 0.0.0.0\n"
    "  weir serve --api-keys keys.json --tls-cert cert.pem --tls-key key.pem \\\n"
    "    --access-log -\n\n"
    "  curl http://127.0.0.1:8080/v1/chat/completions -d \\\n"
    "    '{\"messages\": [{\"role\": \"user\", \"content\": \"What is 2 + 3?\"}]}'";
