/* A module's text: where its functions begin and end, its variables and files. What is not
 * understood ends the program. */
#include "text.h"

#include "ptx.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void decode_failed(const function &f, size_t text, const char *format, ...)
{
    const std::string &s = f.of->text;
    va_list args;
    fprintf(stderr, "ptx: %s: ", f.name.c_str());
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, ":\n    %s\n", s.substr(text, s.find('\n', text) - text).c_str());
    _exit(97);
}

/* .global .align 8 .b8 name[4] = {1, 2, 3, 4}; */
static void read_variable(module &m, reader &r, const std::string &what)
{
    const declared d = declaration(r);
    std::vector<uint8_t> bytes(d.size);
    if (r.take('=') && r.take('{')) {
        reader list{r.s, r.at};
        size_t k = 0;
        while (list.peek() != '}' && k < bytes.size()) {
            bytes[k++] = static_cast<uint8_t>(atoi(list.word().c_str()));
            list.take(',');
        }
    }
    r.until(';');
    m.variables[d.name] =
        what == ".shared"
            ? variable{d.align, d.size, SHARED}
            : variable{reinterpret_cast<uint64_t>(device_constant(bytes.data(), d.size)),
                       d.size,
                       GLOBAL};
}

module *module_read(std::string_view text)
{
    module *m = new module;
    m->text = text;
    reader r{m->text, 0};
    for (;;) {
        const std::string w = r.peek() ? r.word() : "";
        if (w.empty())
            break;
        if (w == ".file") {
            const uint32_t n = static_cast<uint32_t>(atoi(r.word().c_str()));
            r.until('"');
            m->files[n] = r.until('"');
            r.line();
        } else if (w == ".section") {
            r.until('{');
            r.braces();
        } else if (w == ".global" || w == ".const" || w == ".shared") {
            read_variable(*m, r, w);
        } else if (w == ".entry" || w == ".func") {
            if (r.take('('))
                r.until(')');
            auto f = std::make_unique<function>();
            f->of = m;
            f->name = r.word();
            f->text = r.at;
            while (r.peek() && r.peek() != '{' && r.peek() != ';')
                r.at++;
            if (r.take('{')) {
                r.braces();
                f->end = r.at;
                m->functions[f->name] = std::move(f);
            } else {
                r.take(';'); /* a declaration */
            }
        } else if (w == ".version" || w == ".target" || w == ".address_size") {
            r.line();
        } else if (w != ".visible" && w != ".extern" && w != ".weak") {
            fprintf(stderr, "ptx: a module with %s, which is unknown\n", w.c_str());
            _exit(97);
        }
    }
    return m;
}
