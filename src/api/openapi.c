/* GET /openapi.json: docs/openapi.json, which the assembler puts into the program as it is, with
 * the prefix of all routes as its server. */
#include "api/call.h"

#include <string.h>

extern const char weir_openapi_begin[], weir_openapi_end[];

__asm__(".pushsection .rodata\n"
        ".global weir_openapi_begin, weir_openapi_end\n"
        "weir_openapi_begin:\n"
        ".incbin \"" WEIR_OPENAPI_FILE "\"\n"
        "weir_openapi_end:\n"
        ".byte 0\n"
        ".popsection\n");

enum err api_openapi(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    static const char server[] = "\"servers\": [{\"url\": ";
    const char *prefix = c->api->cfg.prefix, *at = strstr(weir_openapi_begin, server);
    (void)in;
    (void)e;
    if (prefix && at) {
        at += strlen(server);
        buf_add(&c->body, weir_openapi_begin, (size_t)(at - weir_openapi_begin));
        api_put_text(&c->body, prefix, strlen(prefix));
        at = strchr(at, '}');
    } else {
        at = weir_openapi_begin;
    }
    buf_add(&c->body, at, (size_t)(weir_openapi_end - at));
    return OK;
}
