#include "cli/model_options.h"

#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>

static struct device device_default(void)
{
    struct device d = {.kind = DEVICE_AUTO};
    const char *name = getenv("WEIR_DEVICE");
    if (name && name[0] && device_parse(name, &d) != OK) {
        fprintf(stderr, "weir: WEIR_DEVICE=%s: not auto, cpu, cuda or cuda:N\n", name);
        exit(EXIT_USAGE);
    }
    return d;
}

struct cli_model cli_model_default(enum kv_type kv_type)
{
    return (struct cli_model){.kv_type = kv_type, .device = device_default()};
}

/* "0.8", or a size; a number without a unit that is not above 1 is a share. */
static void parse_gpu_memory(struct argp_state *s, const char *arg, struct device *d)
{
    double share = 0;
    d->memory_bytes = 0;
    d->memory_share = 0;
    if (cli_decimal(arg, &share) && share > 0.0 && share <= 1.0)
        d->memory_share = share;
    else
        d->memory_bytes = cli_size(s, "--gpu-memory", arg);
}

error_t cli_device_option(int key, char *arg, struct argp_state *s, struct device *d)
{
    switch (key) {
    case CLI_KEY_DEVICE:
        if (device_parse(arg, d) != OK)
            argp_error(s, "--device: '%s' is not auto, cpu, cuda or cuda:N", arg);
        return 0;
    case CLI_KEY_GPU_MEMORY:
        parse_gpu_memory(s, arg, d);
        return 0;
    case CLI_KEY_GPU_ZERO:
        d->zero_buffers = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

error_t cli_model_option(int key, char *arg, struct argp_state *s, struct cli_model *m)
{
    switch (key) {
    case 'm':
        m->path = arg;
        return 0;
    case 'c':
        m->n_ctx = (uint32_t)cli_number(s, "--context", arg, 2, MODEL_MAX_CONTEXT);
        return 0;
    case 'j':
        m->n_threads = (uint32_t)cli_number(s, "--threads", arg, 1, 1024);
        return 0;
    case 'k':
        m->kv_type = cli_kv_type(s, arg);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(s, "unexpected argument '%s'", arg);
        return 0;
    default:
        return cli_device_option(key, arg, s, &m->device);
    }
}

void cli_model_configure(const struct cli_model *m, struct engine_config *c)
{
    c->n_ctx = m->n_ctx;
    c->n_threads = m->n_threads;
    c->kv_type = m->kv_type;
    c->device = m->device;
}
