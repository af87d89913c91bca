/* GET /openapi.json: docs/openapi.json, which the assembler puts into the program as it is. */
#include "api/call.h"

extern const char weir_openapi_begin[], weir_openapi_end[];

__asm__(".pushsection .rodata\n"
        ".global weir_openapi_begin, weir_openapi_end\n"
        "weir_openapi_begin:\n"
        ".incbin \"" WEIR_OPENAPI_FILE "\"\n"
        "weir_openapi_end:\n"
        ".byte 0\n"
        ".popsection\n");

void api_openapi(struct api_call *c, const struct api_input *in)
{
    (void)in;
    buf_add(&c->body, weir_openapi_begin, (size_t)(weir_openapi_end - weir_openapi_begin));
    api_answer_json(c, 200);
}
