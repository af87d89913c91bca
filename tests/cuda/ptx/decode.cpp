/* Of a function that is launched, its instructions.
 *
 * A call is replaced by what is called, with its arguments in the memory of each thread; names are
 * known in the braces that they are declared in. */
#include "text.h"

#include "ptx.h"

#include <unordered_map>

namespace
{

struct reg {
    uint32_t place, wide; /* 0: a predicate */
};
struct symbol {
    enum space space;
    uint64_t at;
};

uint32_t round_up(uint32_t n, uint32_t to)
{
    return (n + to - 1) / to * to;
}

struct decoder {
    function &f;
    reader r;
    std::vector<std::unordered_map<std::string, reg>> regs;
    std::vector<std::vector<std::pair<std::string, uint32_t>>> ranges; /* %r<5>: prefix, bytes */
    std::unordered_map<std::string, symbol> symbols;
    std::map<std::pair<uint64_t, uint32_t>, uint32_t> constants;
    std::unordered_map<std::string, uint32_t> labels;
    struct jump {
        size_t insn;
        std::string label;
        size_t text;
    };
    std::vector<jump> jumps;
    uint32_t file = 0, line = 0, calls = 0, dynamic = 0;
    size_t now = 0;     /* the statement, in the text */
    std::string prefix; /* of labels: those of a function that is called more than once */
    std::string end;    /* the label that `ret` goes to, in a function that was called */

    explicit decoder(function &of) : f(of), r{of.of->text, of.text}
    {
    }

    uint32_t place(uint32_t wide)
    {
        const uint32_t at = f.units;
        f.units += wide == 8 ? 4 : wide == 4 ? 2 : 1;
        return at;
    }
    uint32_t constant(uint64_t bits, uint32_t wide)
    {
        const auto [it, fresh] = constants.try_emplace({bits, wide}, 0);
        if (!fresh)
            return it->second;
        it->second = place(wide);
        f.file.resize(static_cast<size_t>(f.units) * UNIT);
        f.defined.resize(f.units);
        uint8_t *to = f.file.data() + static_cast<size_t>(it->second) * UNIT;
        const uint32_t all = bits ? ALL_LANES : 0;
        if (wide == 0)
            memcpy(to, &all, sizeof all);
        for (uint32_t l = 0; l < LANES; l++)
            memcpy(to + l * wide, &bits, wide);
        f.defined[it->second] = ALL_LANES;
        return it->second;
    }

    void declare_regs()
    {
        const uint32_t wide = bytes_of(r.word());
        do {
            const std::string name = r.word();
            if (r.take('<')) {
                r.until('>');
                ranges.back().push_back({name, wide});
            } else {
                regs.back()[name] = {place(wide), wide};
            }
        } while (r.take(','));
        r.take(';');
    }
    void declare(enum space s)
    {
        const declared d = declaration(r);
        uint32_t *used = s == SHARED ? &f.shared : &f.local;
        if (s == SHARED && dynamic)
            decode_failed(f, now, "shared memory after a use of that of the launch");
        *used = round_up(*used, d.align);
        symbols[d.name] = {s, *used + (s == SHARED ? SHARED_BASE : 0)};
        *used += d.size;
        r.take(';');
    }

    const reg *find_reg(const std::string &name)
    {
        for (size_t k = regs.size(); k-- > 0;) {
            const auto it = regs[k].find(name);
            if (it != regs[k].end())
                return &it->second;
            for (const auto &range : ranges[k]) {
                const size_t n = range.first.size();
                if (name.compare(0, n, range.first) == 0 && name.size() > n &&
                    name.find_first_not_of("0123456789", n) == std::string::npos)
                    return &(regs[k][name] = {place(range.second), range.second});
            }
        }
        static const char *const special[] = {
            "%tid.", "%ntid.", "%ctaid.", "%nctaid.", "%laneid", "%warpid", "%lanemask_lt"};
        for (const char *s : special) {
            if (name.rfind(s, 0) != 0)
                continue;
            const reg p = {place(4), 4};
            f.defined.resize(f.units);
            f.defined[p.place] = ALL_LANES;
            f.specials.push_back({name, p.place});
            return &(regs[0][name] = p);
        }
        return nullptr;
    }
    bool find_symbol(const std::string &name, symbol *s)
    {
        const auto it = symbols.find(name);
        if (it != symbols.end()) {
            *s = it->second;
            return true;
        }
        const auto global = f.of->variables.find(name);
        if (global == f.of->variables.end())
            return false;
        *s = {global->second.space, global->second.at};
        if (s->space == SHARED) { /* what the launch says, behind what is the kernel's own */
            dynamic = SHARED_BASE + round_up(f.shared, 16);
            s->at = dynamic;
        }
        return true;
    }
    /* Shared memory that kernels of the module may have: those that name it do. */
    void place_shared()
    {
        const std::string_view text(f.of->text.data() + f.text, f.end - f.text);
        for (const auto &[name, v] : f.of->variables) {
            if (v.space != SHARED || !v.size || text.find(name) == text.npos)
                continue;
            f.shared = round_up(f.shared, static_cast<uint32_t>(v.at));
            symbols[name] = {SHARED, f.shared + SHARED_BASE};
            f.shared += static_cast<uint32_t>(v.size);
        }
    }

    /* The bits of a number; 0f and 0d give those of a float. */
    bool number(const std::string &w, uint64_t *bits)
    {
        char *behind;
        if (w.empty() || !(isdigit(static_cast<unsigned char>(w[0])) || w[0] == '-'))
            return false;
        const bool is_float = w[0] == '0' && (tolower(w[1]) == 'f' || tolower(w[1]) == 'd');
        *bits = is_float      ? strtoull(w.c_str() + 2, &behind, 16)
                : w[0] == '-' ? static_cast<uint64_t>(strtoll(w.c_str(), &behind, 0))
                              : strtoull(w.c_str(), &behind, 0);
        return *behind == 0 || strcmp(behind, "U") == 0;
    }

    /* An operand's place; want: bytes, 0 for a predicate, -1 for any, which *wide becomes. */
    uint32_t operand(const std::string &w, int want, uint32_t *wide)
    {
        uint64_t bits;
        symbol s;
        *wide = want < 0 ? 8 : static_cast<uint32_t>(want);
        if (w == "_")
            return place(*wide);
        if (const reg *p = find_reg(w)) {
            if (want >= 0 && p->wide != static_cast<uint32_t>(want))
                decode_failed(f, now, "%s has %u bytes, not %d", w.c_str(), p->wide, want);
            *wide = p->wide;
            return p->place;
        }
        if (number(w, &bits))
            return constant(*wide == 8 || *wide == 0 ? bits : bits & ((1ull << *wide * 8) - 1),
                            *wide);
        if (find_symbol(w, &s))
            return constant(s.at, *wide);
        decode_failed(f, now, "%s is unknown", w.c_str());
    }

    /* [reg+4], [symbol+4], [symbol] */
    uint32_t address(const std::string &w, insn &i, int n)
    {
        uint32_t wide;
        symbol s;
        const size_t plus = w.find('+');
        const std::string base = w.substr(1, plus == std::string::npos ? w.size() - 2 : plus - 1);
        uint64_t bits = 0;
        if (plus != std::string::npos && !number(w.substr(plus + 1, w.size() - plus - 2), &bits))
            decode_failed(f, now, "the address %s", w.c_str());
        i.plus[n] = static_cast<int64_t>(bits);
        if (find_symbol(base, &s) && s.space == LOCAL)
            i.space = LOCAL; /* st.param, ld.param of a call */
        const uint32_t at = operand(base, -1, &wide);
        i.address_wide[n] = static_cast<uint8_t>(wide);
        return at;
    }

    void add(insn &i, const std::vector<uint32_t> &op)
    {
        f.ops.emplace_back(new uint32_t[op.size() + 1]);
        std::copy(op.begin(), op.end(), f.ops.back().get());
        i.op = f.ops.back().get();
        f.code.push_back(i);
    }

    /* Operands one after another: those in braces, and both of a|b, count singly. */
    std::vector<std::string> operand_words(const std::string &text)
    {
        std::vector<std::string> words;
        std::string w;
        for (const char c : text + ",") {
            if (isspace(static_cast<unsigned char>(c)) || c == '{' || c == '}')
                continue;
            if (c != ',' && c != '|') {
                w += c;
                continue;
            }
            if (!w.empty())
                words.push_back(w);
            w.clear();
        }
        return words;
    }

    void by_table(const std::string &op, insn &i, const std::vector<std::string> &words)
    {
        const form_of *form = form_find(op);
        if (!form)
            decode_failed(f, now, "%s is unknown", op.c_str());
        std::string operands = form->operands;
        uint32_t wide;
        if (op == "bar.sync" && words.size() == 2)
            operands = "=44"; /* of so many threads */
        if (op.rfind("shfl", 0) == 0 && words.size() == 5)
            operands = "4=4444"; /* without a predicate */
        if (op.rfind("cp.async.cg", 0) == 0 && words.size() == 3)
            operands = "=aa4";
        if (words.size() != operands.size() - 1)
            decode_failed(f,
                          now,
                          "%s has %zu operands, not %zu",
                          op.c_str(),
                          words.size(),
                          operands.size() - 1);
        i.run = form->run;
        i.flags = form->flags;
        i.space = op.find(".shared") != std::string::npos ? SHARED : GLOBAL;
        f.has_wgmma |= (i.flags & INSN_WGMMA) != 0;
        f.has_bulk |= (i.flags & INSN_BULK) != 0;
        std::vector<uint32_t> at;
        int addresses = 0;
        size_t k = 0;
        for (const char c : operands) {
            if (c == '=')
                i.n_dst = static_cast<uint16_t>(at.size());
            else if (c == 'a')
                at.push_back(address(words[k++], i, addresses++));
            else
                at.push_back(operand(words[k++], c == 'p' ? 0 : c - '0', &wide));
        }
        i.n_src = static_cast<uint16_t>(at.size() - i.n_dst);
        fuse(op, i, at);
        follow(op, i, at);
        add(i, at);
    }

    /* --- products and sums that become one ---
     *
     * Where the text has mul.f32 and add.f32 or sub.f32, ptxas may make an fma of both, or not;
     * where it has mul.rn.f32 it may not. WEIR_PTX_FUSE=1 does so wherever it may be done, a larger
     * number draws: no promise about bits may depend on it. */
    struct product {
        uint32_t a, b;
    };
    std::unordered_map<uint32_t, product> products; /* by place, since the last label */

    void fuse(const std::string &op, insn &i, std::vector<uint32_t> &at)
    {
        static const char *const said = getenv("WEIR_PTX_FUSE");
        static const uint32_t seed = said ? static_cast<uint32_t>(atoi(said)) : 0;
        const bool sum = op == "add.f32", difference = op == "sub.f32";
        if (!seed || (seed > 1 && (f.code.size() * 2654435761u ^ seed * 0x9e3779b9u) >> 16 & 1))
            return;
        if (!sum && !difference)
            return;
        const auto left = products.find(at[1]), right = products.find(at[2]);
        if (left != products.end()) {
            i.run = form_find(sum ? "fma.rn.f32" : "fma.minus.f32")->run;
            at = {at[0], left->second.a, left->second.b, at[2]};
        } else if (right != products.end()) {
            i.run = form_find(sum ? "fma.rn.f32" : "fma.from.f32")->run;
            at = {at[0], right->second.a, right->second.b, at[1]};
        }
        i.n_src = static_cast<uint16_t>(at.size() - 1);
    }
    /* What is written is no product any more, nor one of what it was. */
    void follow(const std::string &op, const insn &i, const std::vector<uint32_t> &at)
    {
        for (int k = 0; k < i.n_dst && !products.empty(); k++) {
            const uint32_t d = at[static_cast<size_t>(k)];
            std::erase_if(products, [d](const auto &p) {
                return p.first == d || p.second.a == d || p.second.b == d;
            });
        }
        if (op == "mul.f32" && !i.guard && at[0] != at[1] && at[0] != at[2])
            products[at[0]] = {at[1], at[2]};
    }

    void memory(const std::string &op, insn &i, const std::vector<std::string> &words)
    {
        if (!form_memory(op, i) || words.size() != size_t(i.n_dst) + i.n_src)
            decode_failed(f, now, "%s is unknown", op.c_str());
        std::vector<uint32_t> at;
        for (const std::string &w : words) {
            uint32_t wide = 0;
            if (w[0] == '[') {
                at.push_back(address(w, i, 0));
                continue;
            }
            at.push_back(operand(w, -1, &wide));
            if (i.wide[0] && i.wide[0] != wide)
                decode_failed(f, now, "registers of different sizes");
            i.wide[0] = static_cast<uint8_t>(wide);
        }
        follow(op, i, at);
        add(i, at);
    }

    /* mov of parts: {a, b} from one register, or to it. */
    void parts(insn &i, const std::vector<std::string> &words, bool to_parts)
    {
        std::vector<uint32_t> at;
        const size_t n = words.size() - 1, whole = to_parts ? n : 0;
        uint32_t wide = 0;
        (void)operand(words[whole], -1, &wide);
        i.wide[0] = static_cast<uint8_t>(wide / n);
        i.wide[1] = static_cast<uint8_t>(wide);
        for (size_t k = 0; k < words.size(); k++)
            at.push_back(operand(words[k], i.wide[k == whole], &wide));
        i.n_dst = static_cast<uint16_t>(to_parts ? words.size() - 1 : 1);
        i.n_src = static_cast<uint16_t>(to_parts ? 1 : words.size() - 1);
        i.run = to_parts ? move_to_parts : move_from_parts;
        follow("", i, at);
        add(i, at);
    }
    static void move_to_parts(warp &w, const insn &i, uint32_t m)
    {
        const uint8_t *from = w.at<uint8_t>(i.op[i.n_dst]);
        for (int l = 0; l < LANES; l++) {
            for (int k = 0; m >> l & 1 && k < i.n_dst; k++)
                memcpy(w.at<uint8_t>(i.op[k]) + l * i.wide[0],
                       from + l * i.wide[1] + k * i.wide[0],
                       i.wide[0]);
        }
    }
    static void move_from_parts(warp &w, const insn &i, uint32_t m)
    {
        uint8_t *to = w.at<uint8_t>(i.op[0]);
        for (int l = 0; l < LANES; l++) {
            for (int k = 0; m >> l & 1 && k < i.n_src; k++)
                memcpy(to + l * i.wide[1] + k * i.wide[0],
                       w.at<uint8_t>(i.op[k + 1]) + l * i.wide[0],
                       i.wide[0]);
        }
    }

    void branch(insn &i, const std::string &label)
    {
        i.run = warp_branch;
        jumps.push_back({f.code.size(), label, r.at});
        add(i, {});
    }

    /* call (result), name, (arguments): the function's text, here. */
    void call(const std::string &text)
    {
        std::vector<std::string> words;
        std::string w;
        for (const char c : text + ",") {
            if (isspace(static_cast<unsigned char>(c)) || c == '(' || c == ')')
                continue;
            if (c != ',')
                w += c;
            else if (!w.empty())
                words.push_back(w), w.clear();
        }
        const auto callee =
            words.size() < 2 ? f.of->functions.end() : f.of->functions.find(words[1]);
        if (callee == f.of->functions.end() || callee->second->text == 0)
            decode_failed(f, now, "a call of something unknown, %s", text.c_str());
        decoder *const self = this;
        const reader back = r;
        const std::string old_prefix = prefix, old_end = end;
        prefix = "call " + std::to_string(++calls) + " ";
        end = prefix + "end";
        r.at = callee->second->text;
        std::vector<std::string> names = {self->result_of(*callee->second)};
        r.take('(');
        while (r.peek() != ')') {
            r.word(); /* .param */
            names.push_back(declaration(r).name);
            r.take(',');
        }
        r.take(')');
        words.erase(words.begin() + 1);
        if (words.size() != names.size())
            decode_failed(f, now, "a call with %zu arguments", words.size());
        for (size_t k = 0; k < names.size(); k++) {
            symbol s;
            if (!find_symbol(words[k], &s))
                decode_failed(f, now, "%s is unknown", words[k].c_str());
            symbols[names[k]] = s;
        }
        const uint32_t was_file = file, was_line = line;
        body();
        labels[end] = static_cast<uint32_t>(f.code.size());
        file = was_file, line = was_line;
        r.at = back.at;
        prefix = old_prefix, end = old_end;
    }
    /* .func (.param .. name) NAME: name */
    std::string result_of(const function &callee)
    {
        const std::string &s = f.of->text;
        const size_t close = s.rfind(')', callee.text), open = s.rfind('(', close);
        reader inside{s, open + 1};
        inside.word();
        return declaration(inside).name;
    }

    void instruction(const std::string &op, insn &i, const std::string &text)
    {
        const std::vector<std::string> words = operand_words(text);
        if (op == "bra" || op == "bra.uni") {
            branch(i, prefix + words.at(0));
        } else if (op == "ret" && !end.empty()) {
            branch(i, end);
        } else if (op.rfind("call", 0) == 0) {
            call(text);
        } else if (op.rfind("ld.", 0) == 0 || op.rfind("st.", 0) == 0) {
            memory(op, i, words);
        } else if (op.rfind("cvt.", 0) == 0) {
            uint32_t wide[2] = {0, 0};
            if (!form_convert(op, i) || words.size() < 2)
                decode_failed(f, now, "%s is unknown", op.c_str());
            std::vector<uint32_t> at;
            for (size_t k = 0; k < words.size(); k++)
                at.push_back(operand(words[k], -1, &wide[k != 0]));
            i.wide[0] = static_cast<uint8_t>(wide[0]);
            i.wide[1] = static_cast<uint8_t>(wide[1]);
            i.n_dst = 1;
            i.n_src = static_cast<uint16_t>(words.size() - 1);
            follow(op, i, at);
            add(i, at);
        } else if (op.rfind("mov.", 0) == 0 && text.find('{') != std::string::npos) {
            parts(i, words, text.find('{') < text.find(','));
        } else {
            by_table(op, i, words);
        }
    }

    /* From the first brace to the last. */
    void body()
    {
        int depth = 0;
        do {
            if (r.take('{')) {
                depth++;
                regs.emplace_back();
                ranges.emplace_back();
                continue;
            }
            if (r.take('}')) {
                depth--;
                regs.pop_back();
                ranges.pop_back();
                continue;
            }
            statement();
        } while (depth);
    }
    void statement()
    {
        insn i = {};
        r.space();
        now = r.at;
        i.text = static_cast<uint32_t>(now);
        if (r.take(';'))
            return;
        if (r.take('@')) {
            const bool flip = r.take('!');
            uint32_t wide;
            std::string p = r.word();
            if (p[0] == '!')
                p.erase(0, 1), i.flip = ALL_LANES;
            i.flip = flip ? ALL_LANES : i.flip;
            i.guard = operand(p, 0, &wide);
        }
        std::string w = r.word();
        if (w == ".reg")
            return declare_regs();
        if (w == ".shared" || w == ".local" || w == ".param")
            return declare(w == ".shared" ? SHARED : LOCAL);
        if (w == ".loc") {
            file = static_cast<uint32_t>(atoi(r.word().c_str()));
            line = static_cast<uint32_t>(atoi(r.word().c_str()));
            return r.line();
        }
        if (w == ".pragma") {
            r.until(';');
            return;
        }
        if (!w.empty() && w.back() == ':') {
            w.pop_back();
            products.clear();
            labels[prefix + w] = static_cast<uint32_t>(f.code.size());
            return;
        }
        if (w.empty() || w[0] == '.')
            decode_failed(f, now, "%s is unknown", w.c_str());
        i.file = file;
        i.line = line;
        const std::string operands = r.until(';');
        instruction(w, i, operands);
    }

    void parameters()
    {
        r.take('(');
        while (r.peek() != ')') {
            r.word(); /* .param */
            const declared d = declaration(r);
            f.param_bytes = round_up(f.param_bytes, d.align);
            symbols[d.name] = {PARAM, f.param_bytes};
            f.param_at.push_back(f.param_bytes);
            f.param_size.push_back(d.size);
            f.param_bytes += d.size;
            r.take(',');
        }
        r.take(')');
        for (;;) {
            const char c = r.peek();
            if (c == '{')
                return;
            if (r.word() == ".maxntid") {
                uint32_t n = 1;
                do
                    n *= static_cast<uint32_t>(atoi(r.word().c_str()));
                while (r.take(','));
                f.most_threads = n;
            } else {
                r.word(); /* .minnctapersm N */
            }
        }
    }
};

} // namespace

void function_decode(function &f)
{
    f.param_bytes = 0;
    f.param_at.clear(), f.param_size.clear();
    decoder d(f);
    d.regs.emplace_back();
    d.ranges.emplace_back();
    d.parameters();
    d.place_shared();
    d.body();
    for (const decoder::jump &j : d.jumps) {
        const auto to = d.labels.find(j.label);
        if (to == d.labels.end())
            decode_failed(f, j.text, "%s is no label", j.label.c_str());
        f.code[j.insn].plus[0] = to->second;
    }
    f.file.resize(static_cast<size_t>(f.units) * UNIT);
    f.defined.resize(f.units);
    f.decoded = true;
}
