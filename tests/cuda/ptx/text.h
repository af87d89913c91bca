/* The words of a module's text. */
#ifndef WEIR_TESTS_CUDA_PTX_TEXT_H
#define WEIR_TESTS_CUDA_PTX_TEXT_H

#include <algorithm>
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <string>

struct reader {
    const std::string &s;
    size_t at;

    void space()
    {
        for (;;) {
            while (at < s.size() && isspace(static_cast<unsigned char>(s[at])))
                at++;
            if (s.compare(at, 2, "//") != 0)
                return;
            line();
        }
    }
    void line()
    {
        at = s.find('\n', at);
        at = at == std::string::npos ? s.size() : at;
    }
    static bool in_word(char c)
    {
        return isalnum(static_cast<unsigned char>(c)) || strchr("_$%.:!", c);
    }
    std::string word()
    {
        space();
        const size_t from = at;
        while (at < s.size() && s[at] && in_word(s[at]))
            at++;
        return s.substr(from, at - from);
    }
    char peek()
    {
        space();
        return at < s.size() ? s[at] : 0;
    }
    bool take(char c)
    {
        const bool there = peek() == c;
        at += there;
        return there;
    }
    /* All up to one of these, which is taken too. */
    std::string until(char end)
    {
        const size_t from = at;
        at = std::min(s.find(end, at), s.size());
        const std::string r = s.substr(from, at - from);
        at += at < s.size();
        return r;
    }
    void braces() /* from behind the first to behind the last */
    {
        for (int depth = 1; depth && at < s.size(); at++)
            depth += (s[at] == '{') - (s[at] == '}');
    }
};

static inline uint32_t bytes_of(const std::string &type) /* .b32 */
{
    return type == ".pred" ? 0 : static_cast<uint32_t>(atoi(type.c_str() + 2)) / 8;
}

struct declared {
    std::string name;
    uint32_t align, size;
    bool open; /* name[] */
};

/* [.align N] .TYPE name[N], behind .shared, .local, .param or .global. */
static inline declared declaration(reader &r)
{
    declared d = {"", 0, 0, false};
    std::string type;
    for (;;) {
        type = r.word();
        if (type == ".align")
            d.align = static_cast<uint32_t>(atoi(r.word().c_str()));
        else if (type != ".visible" && type != ".weak" && type != ".extern")
            break;
    }
    d.size = bytes_of(type);
    d.align = d.align ? d.align : d.size;
    d.name = r.word();
    if (r.take('[')) {
        const std::string n = r.until(']');
        d.open = n.empty();
        d.size *= static_cast<uint32_t>(atoi(n.c_str()));
    }
    return d;
}

#endif
