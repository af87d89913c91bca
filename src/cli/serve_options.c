#include "cli/serve_options.h"

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/model_options.h"
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

const struct preset *serve_preset_find(const char *name)
{
    for (size_t i = 0; i < N_PRESETS; i++)
        if (strcmp(name, presets[i].name) == 0)
            return &presets[i];
    return NULL;
}

/* What was not given has no value yet. */
static void apply_preset(struct serve_options *o)
{
    const struct preset *p = o->preset ? o->preset : serve_preset_find("balanced");
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

/* A whole number that may be below 0. */
static long long whole(
    struct argp_state *s, const char *flag, const char *arg, long long lo, long long hi)
{
    char *end;
    errno = 0;
    long long v = strtoll(arg, &end, 10);
    if (errno || !isdigit((unsigned char)arg[*arg == '-']) || *end || v < lo || v > hi)
        argp_error(s, "%s: '%s' is not a whole number from %lld to %lld", flag, arg, lo, hi);
    return v;
}

/* 1: on, 0: off, in any of the words that the environment has for it; -1: neither. */
static int switch_of(const char *word)
{
    static const char *const words[] = {"0", "off", "false", "no", "1", "on", "true", "yes"};
    for (int i = 0; i < 8; i++)
        if (strcmp(word, words[i]) == 0)
            return i >= 4;
    return -1;
}

static bool on_or_off(struct argp_state *s, const char *flag, const char *arg)
{
    const int on = switch_of(arg);
    if (on < 0)
        argp_error(s, "%s: '%s' is not on or off", flag, arg);
    return on;
}

static void put_unsigned(void *at, size_t size, uint64_t v)
{
    if (size == sizeof(uint16_t))
        *(uint16_t *)at = (uint16_t)v;
    else if (size == sizeof(uint32_t))
        *(uint32_t *)at = (uint32_t)v;
    else
        *(uint64_t *)at = v;
}

/* "top-p" is top_p of requests. */
static void add_default(struct serve_options *o, const char *name, const char *value)
{
    buf_str(&o->defaults, o->defaults.len ? ",\"" : "\"");
    for (; *name; name++)
        buf_char(&o->defaults, *name == '-' ? '_' : *name);
    buf_printf(&o->defaults, "\":%s", value);
}

static void take_default(struct argp_state *s,
                         const struct serve_flag *f,
                         const char *flag,
                         const char *arg)
{
    char value[32];
    if (f->kind == FLAG_DEFAULT_REAL)
        snprintf(value, sizeof value, "%.9g", cli_real(s, flag, arg, f->lo, f->hi));
    else if (f->kind == FLAG_DEFAULT_WHOLE)
        snprintf(value,
                 sizeof value,
                 "%lld",
                 whole(s, flag, arg, (long long)f->lo, f->hi > 0 ? (long long)f->hi : INT64_MAX));
    else
        snprintf(value, sizeof value, "%s", on_or_off(s, flag, arg) ? "true" : "false");
    add_default(s->input, f->name, value);
}

static error_t take(const struct serve_flag *f, char *arg, struct argp_state *s)
{
    struct serve_options *o = s->input;
    void *at = (char *)o + f->at;
    char flag[32];
    snprintf(flag, sizeof flag, "--%s", f->name);
    switch (f->kind) {
    case FLAG_OTHER:
        f->take(s, flag, arg);
        break;
    case FLAG_NUMBER:
        put_unsigned(at, f->size, cli_number(s, flag, arg, (uint64_t)f->lo, (uint64_t)f->hi));
        break;
    case FLAG_SIZE:
        put_unsigned(at, f->size, cli_size(s, flag, arg));
        break;
    case FLAG_REAL:
        *(double *)at = cli_real(s, flag, arg, f->lo, f->hi);
        break;
    case FLAG_TEXT:
        if (f->empty && arg[0] == '\0')
            argp_error(s, "%s: %s", flag, f->empty);
        *(const char **)at = arg;
        break;
    case FLAG_SWITCH:
        *(bool *)at = !arg || on_or_off(s, flag, arg);
        break;
    case FLAG_UNLESS:
        *(bool *)at = !on_or_off(s, flag, arg);
        break;
    case FLAG_DEVICE:
        return cli_device_option(f->key, arg, s, &o->engine.device);
    case FLAG_DEFAULT_REAL:
    case FLAG_DEFAULT_WHOLE:
    case FLAG_DEFAULT_BOOL:
        take_default(s, f, flag, arg);
        break;
    }
    return 0;
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

/* What fits together, of what was given. */
static void check_options(const struct serve_options *o, struct argp_state *s)
{
    if (o->engine.cache_bytes && !o->engine.cache_dir)
        argp_error(s, "--cache-disk: says how much --cache-dir may take, which is not given");
    if ((o->batches.n_parallel || o->batches.max_file_bytes) && !o->batches.dir)
        argp_error(s,
                   "--batch-parallel and --batch-file: are of the batches in --batch-dir, which is "
                   "not given");
    if (o->api_key && o->api_keys_file)
        argp_error(s, "--api-key and --api-keys: give one of them");
    if (!o->tls_cert_file != !o->tls_key_file)
        argp_error(s, "--tls-cert and --tls-key: give both");
    if (o->chat_template && o->chat_template_file)
        argp_error(s, "--chat-template and --chat-template-file: give one of them");
}

/* By which argp knows row i: above all letters. */
static int key_of(size_t i)
{
    return serve_flags[i].key || !serve_flags[i].name ? serve_flags[i].key : 256 + (int)i;
}

/* Is a flag without a value set? Ends the process, as for a wrong option, on any other word. */
static bool is_set(const char *env, const char *value)
{
    const int on = switch_of(value);
    if (on < 0) {
        fprintf(stderr, "weir: %s=%s: not 1, on, true, yes, 0, off, false or no\n", env, value);
        exit(EXIT_USAGE);
    }
    return on;
}

/* What WEIR_MAX_QUEUE says of --max-queue, NULL: nothing. Set to nothing is not set, as compose
 * files have it, but for what guards the server: an empty secret is a mistake. */
static char *value_from_env(const struct serve_flag *f)
{
    char env[64] = "WEIR_";
    size_t n = 5;
    for (const char *c = f->name; *c && n < sizeof env - 1; c++)
        env[n++] = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    env[n] = '\0';
    char *value = getenv(env);
    if (!value || (!*value && !f->guard) || (!f->arg && !is_set(env, value)))
        return NULL;
    return value;
}

static bool is_given(const struct serve_options *o, const char *name)
{
    for (size_t i = 0; serve_flags[i].doc; i++)
        if (serve_flags[i].name && strcmp(serve_flags[i].name, name) == 0)
            return o->given[i];
    return false;
}

/* What the command line leaves open. */
static void take_environment(struct argp_state *s)
{
    const struct serve_options *o = s->input;
    for (size_t i = 0; serve_flags[i].doc; i++) {
        const struct serve_flag *f = &serve_flags[i];
        if (!f->name || o->given[i] || (f->instead && is_given(o, f->instead)))
            continue;
        char *value = value_from_env(f);
        if (value)
            (void)take(f, value, s);
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *s)
{
    struct serve_options *o = s->input;
    switch (key) {
    case ARGP_KEY_END:
        take_environment(s);
        check_options(o, s);
        apply_preset(o);
        apply_reasoning(o);
        if (o->batches.dir)
            take_uploads(o);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(s, "unexpected argument '%s'", arg);
        return 0;
    default:
        for (size_t i = 0; serve_flags[i].doc; i++) {
            if (!serve_flags[i].name || key_of(i) != key)
                continue;
            o->given[i] = true;
            return take(&serve_flags[i], arg, s);
        }
        return ARGP_ERR_UNKNOWN;
    }
}

void serve_parse(int argc, char **argv, struct serve_options *o)
{
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
    size_t n_options = 0;
    while (serve_flags[n_options].doc)
        n_options++;
    struct argp_option *options = mem_zalloc(n_options + 1, sizeof *options);
    o->given = mem_zalloc(n_options, sizeof *o->given);
    for (size_t i = 0; i < n_options; i++) {
        const struct serve_flag *f = &serve_flags[i];
        options[i] = (struct argp_option){f->name, key_of(i), f->arg, f->flags, f->doc, f->group};
    }
    o->engine.batch_tokens = o->engine.max_running = 0; /* until the preset is known */
    o->engine.progress = cli_progress;
    o->engine.progress_ctx = "loading";
    const struct argp argp = {.options = options, .parser = parse_option, .doc = serve_doc};
    cli_parse(&argp, argc, argv, o);
    free(options);
    free(o->given);
    o->given = NULL;
}

void serve_options_deinit(struct serve_options *o)
{
    free(o->cors_origins);
    serve_names_deinit(&o->aliases);
    serve_names_deinit(&o->tags);
    buf_deinit(&o->defaults);
}
