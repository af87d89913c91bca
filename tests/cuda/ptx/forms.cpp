/* What instructions do, lane by lane: a table from an opcode to its form and its operands. */
#include "half.h"
#include "ptx.h"

#include <immintrin.h>
#include <string.h>
#include <type_traits>
#include <unordered_map>

namespace
{

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef float f32;
typedef double f64;
struct pred {
};

template <class T> constexpr char letter = std::is_same_v<T, pred> ? 'p' : '0' + sizeof(T);
template <> constexpr char letter<pred> = 'p';
template <class D, class... S> const char operands[] = {letter<D>, '=', letter<S>..., 0};

template <class D> void put(D *d, const D (&r)[LANES], uint32_t m)
{
    if (m == ALL_LANES) {
        memcpy(d, r, sizeof r);
        return;
    }
    for (int l = 0; l < LANES; l++)
        d[l] = m >> l & 1 ? r[l] : d[l];
}

template <class D, class A, class F> void run1(warp &w, const insn &i, uint32_t m)
{
    const A *a = w.at<A>(i.op[1]);
    D r[LANES];
    for (int l = 0; l < LANES; l++)
        r[l] = F{}(a[l]);
    put(w.at<D>(i.op[0]), r, m);
}
template <class D, class A, class B, class F> void run2(warp &w, const insn &i, uint32_t m)
{
    const A *a = w.at<A>(i.op[1]);
    const B *b = w.at<B>(i.op[2]);
    D r[LANES];
    for (int l = 0; l < LANES; l++)
        r[l] = F{}(a[l], b[l]);
    put(w.at<D>(i.op[0]), r, m);
}
template <class D, class A, class B, class C, class F> void run3(warp &w, const insn &i, uint32_t m)
{
    const A *a = w.at<A>(i.op[1]);
    const B *b = w.at<B>(i.op[2]);
    const C *c = w.at<C>(i.op[3]);
    D r[LANES];
    for (int l = 0; l < LANES; l++)
        r[l] = F{}(a[l], b[l], c[l]);
    put(w.at<D>(i.op[0]), r, m);
}

/* As the processor rounds with these bits of its control register: what is computed stays between
 * the barriers, as it is loaded and stored there. */
template <unsigned bits, form inner> void rounded(warp &w, const insn &i, uint32_t m)
{
    const unsigned old = _mm_getcsr();
    _mm_setcsr((old & ~0x6000u) | bits);
    __asm__ volatile("" ::: "memory");
    inner(w, i, m);
    __asm__ volatile("" ::: "memory");
    _mm_setcsr(old);
}
enum { DOWN = 0x2000, TO_ZERO = 0x6000 };

template <class T, class F> form_of of1(F)
{
    return {run1<T, T, F>, operands<T, T>};
}
template <class T, class F> form_of of2(F)
{
    return {run2<T, T, T, F>, operands<T, T, T>};
}
template <class T, class F> form_of of3(F)
{
    return {run3<T, T, T, T, F>, operands<T, T, T, T>};
}
template <class D, class A, class F> form_of from1(F)
{
    return {run1<D, A, F>, operands<D, A>};
}
template <class D, class A, class B, class F> form_of from2(F)
{
    return {run2<D, A, B, F>, operands<D, A, B>};
}

/* Divisors of lanes that do not take part may be 0. */
template <class T, bool rest> void divide(warp &w, const insn &i, uint32_t m)
{
    T *d = w.at<T>(i.op[0]);
    const T *a = w.at<T>(i.op[1]), *b = w.at<T>(i.op[2]);
    for (int l = 0; l < LANES; l++) {
        if (!(m >> l & 1))
            continue;
        if (b[l] == 0)
            fault(w, l, "a division of integers by 0");
        d[l] = rest ? a[l] % b[l] : a[l] / b[l];
    }
}
template <class T, bool rest> form_of division()
{
    return {divide<T, rest>, operands<T, T, T>};
}

/* --- predicates --- */

void put_pred(warp &w, uint32_t place, uint32_t r, uint32_t m)
{
    uint32_t *d = w.at<uint32_t>(place);
    *d = (*d & ~m) | (r & m);
}
template <class T, class F> void run_compare(warp &w, const insn &i, uint32_t m)
{
    const T *a = w.at<T>(i.op[1]), *b = w.at<T>(i.op[2]);
    uint32_t r = 0;
    for (int l = 0; l < LANES; l++)
        r |= static_cast<uint32_t>(F{}(a[l], b[l])) << l;
    put_pred(w, i.op[0], r, m);
}
template <class T, class F> form_of compare(F)
{
    return {run_compare<T, F>, operands<pred, T, T>};
}
template <class F> void run_preds(warp &w, const insn &i, uint32_t m)
{
    put_pred(w, i.op[0], F{}(*w.at<u32>(i.op[1]), *w.at<u32>(i.op[i.n_src])), m);
}
template <class F> form_of preds(F)
{
    return {run_preds<F>, operands<pred, pred, pred>};
}
template <class F> form_of pred1(F, uint8_t flags = 0)
{
    return {run_preds<F>, operands<pred, pred>, flags};
}
template <class T> void run_select(warp &w, const insn &i, uint32_t m)
{
    const T *a = w.at<T>(i.op[1]), *b = w.at<T>(i.op[2]);
    const uint32_t p = *w.at<uint32_t>(i.op[3]);
    T r[LANES];
    for (int l = 0; l < LANES; l++)
        r[l] = p >> l & 1 ? a[l] : b[l];
    put(w.at<T>(i.op[0]), r, m);
}
template <class T> form_of select()
{
    return {run_select<T>, operands<T, T, T, pred>, INSN_SPREADS};
}
template <class T> void run_move(warp &w, const insn &i, uint32_t m)
{
    T r[LANES];
    memcpy(r, w.at<T>(i.op[1]), sizeof r);
    put(w.at<T>(i.op[0]), r, m);
}
template <class T> form_of move()
{
    return {run_move<T>, operands<T, T>, INSN_SPREADS};
}

/* --- sums of more than one word --- */

/* F(a, b, c, carry in) is a sum of 64 bits: its upper half but for a borrow is the carry. */
template <int n, bool in, bool out, class F> void run_carry(warp &w, const insn &i, uint32_t m)
{
    u32 *d = w.at<u32>(i.op[0]);
    const u32 *a = w.at<u32>(i.op[1]), *b = w.at<u32>(i.op[2]), *c = w.at<u32>(i.op[n]);
    for (int l = 0; l < LANES; l++) {
        if (!(m >> l & 1))
            continue;
        const u64 r = F{}(a[l], b[l], c[l], in ? w.carry >> l & 1 : 0);
        d[l] = static_cast<u32>(r);
        if (out)
            w.carry = (w.carry & ~(1u << l)) | static_cast<u32>(r >> 32 & 1) << l;
    }
}
template <bool in, bool out, class F> form_of carry2(F)
{
    return {run_carry<2, in, out, F>, "4=44"};
}
template <bool in, bool out, class F> form_of carry3(F)
{
    return {run_carry<3, in, out, F>, "4=444"};
}

/* --- floats --- */

f32 flushed(f32 x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}
/* The other one where one is no number; +0 is above -0. */
template <class T, bool larger> T best(T a, T b)
{
    typedef std::conditional_t<sizeof(T) == 4, u32, u64> bits;
    const bits x = std::bit_cast<bits>(a), y = std::bit_cast<bits>(b);
    const T equal = std::bit_cast<T>(larger ? x & y : x | y);
    return b != b ? a : a != a ? b : a == b ? equal : (larger ? a > b : a < b) ? a : b;
}
/* What a lane's two halves give, each. */
template <class F> u32 halves(u32 a, u32 b, u32 c)
{
    u32 r = 0;
    for (int s = 0; s < 32; s += 16) {
        const f64 x = f32_of_f16(static_cast<u16>(a >> s)),
                  y = f32_of_f16(static_cast<u16>(b >> s));
        r |= static_cast<u32>(f16_of_f64(F{}(x, y, f32_of_f16(static_cast<u16>(c >> s))))) << s;
    }
    return r;
}
u32 permuted(u32 a, u32 b, u32 c)
{
    const u64 from = static_cast<u64>(b) << 32 | a;
    u32 r = 0;
    for (int k = 0; k < 4; k++) {
        const u32 way = c >> 4 * k & 15;
        u8 byte = static_cast<u8>(from >> (way & 7) * 8);
        if (way & 8)
            byte = byte & 0x80 ? 0xff : 0;
        r |= static_cast<u32>(byte) << 8 * k;
    }
    return r;
}
template <class T> void run_insert(warp &w, const insn &i, uint32_t m)
{
    const T *a = w.at<T>(i.op[1]), *b = w.at<T>(i.op[2]);
    const u32 *at = w.at<u32>(i.op[3]), *n = w.at<u32>(i.op[4]);
    T r[LANES];
    for (int l = 0; l < LANES; l++) {
        const u32 pos = at[l] & 255, len = n[l] & 255;
        const T ones = len >= sizeof(T) * 8 ? ~T(0) : (T(1) << len) - 1;
        const T where = pos >= sizeof(T) * 8 ? 0 : ones << pos;
        r[l] = (b[l] & ~where) | (pos >= sizeof(T) * 8 ? 0 : a[l] << pos & where);
    }
    put(w.at<T>(i.op[0]), r, m);
}

/* --- across lanes --- */

/* The mask of members, one for all; false while some of them are elsewhere. */
bool members(warp &w, const insn &i, uint32_t m, uint32_t *mask)
{
    const u32 *x = w.at<u32>(i.op[i.n_dst + i.n_src - 1]);
    *mask = x[__builtin_ctz(m)];
    for (int l = 0; l < LANES; l++) {
        if (m >> l & 1 && (x[l] != *mask || !(x[l] >> l & 1)))
            fault(w, l, "the mask of members is %08x, of another lane %08x", x[l], *mask);
    }
    return lanes_meet(w, m, *mask);
}
enum way { UP, DOWN_BY, ACROSS, INDEX };
template <way how> void shuffle(warp &w, const insn &i, uint32_t m)
{
    uint32_t mask, inside = 0;
    if (!members(w, i, m, &mask))
        return;
    const int pair = i.n_dst - 1;
    const u32 *a = w.at<u32>(i.op[pair + 1]), *b = w.at<u32>(i.op[pair + 2]);
    const u32 *c = w.at<u32>(i.op[pair + 3]);
    u32 r[LANES] = {};
    for (int l = 0; l < LANES; l++) {
        if (!(m >> l & 1))
            continue;
        const int by = b[l] & 31, seg = c[l] >> 8 & 31, lowest = l & seg;
        const int most = lowest | (c[l] & 31 & ~seg);
        int j = how == UP        ? l - by
                : how == DOWN_BY ? l + by
                : how == ACROSS  ? l ^ by
                                 : (by & ~seg) | lowest;
        if (how == UP ? j >= most : j <= most)
            inside |= 1u << l;
        else
            j = l;
        if (!(m >> j & 1))
            fault(w, l, "shfl: a value of lane %d, which is not here", j);
        r[l] = a[j];
    }
    put(w.at<u32>(i.op[0]), r, m);
    if (pair)
        put_pred(w, i.op[1], inside, m);
}
void vote_ballot(warp &w, const insn &i, uint32_t m)
{
    uint32_t mask;
    u32 r[LANES];
    if (!members(w, i, m, &mask))
        return;
    for (u32 &x : r)
        x = *w.at<u32>(i.op[1]) & m;
    put(w.at<u32>(i.op[0]), r, m);
}
template <bool all> void vote(warp &w, const insn &i, uint32_t m)
{
    uint32_t mask;
    if (!members(w, i, m, &mask))
        return;
    const uint32_t p = *w.at<u32>(i.op[1]) & m;
    put_pred(w, i.op[0], (all ? p == m : p != 0) ? ALL_LANES : 0, m);
}

void nothing(warp &, const insn &, uint32_t)
{
}

const std::unordered_map<std::string, form_of> &table()
{
    static std::unordered_map<std::string, form_of> t;
    if (!t.empty())
        return t;
    auto integers = [](auto zero, const std::string &type) {
        typedef decltype(zero) T;
        t["add." + type] = of2<T>([](T a, T b) { return static_cast<T>(a + b); });
        t["sub." + type] = of2<T>([](T a, T b) { return static_cast<T>(a - b); });
        t["mul.lo." + type] = of2<T>([](T a, T b) { return static_cast<T>(1u * a * b); });
        t["mad.lo." + type] = of3<T>([](T a, T b, T c) { return static_cast<T>(1u * a * b + c); });
        t["min." + type] = of2<T>([](T a, T b) { return a < b ? a : b; });
        t["max." + type] = of2<T>([](T a, T b) { return a > b ? a : b; });
        t["shr." + type] = from2<T, T, u32>([](T a, u32 n) {
            constexpr u32 bits = sizeof(T) * 8;
            return static_cast<T>(n < bits ? a >> n : a < T(0) ? -1 : 0);
        });
        t["div." + type] = division<T, false>();
        t["rem." + type] = division<T, true>();
    };
    integers(u16(), "u16"), integers(u32(), "u32"), integers(u64(), "u64");
    integers(s16(), "s16"), integers(s32(), "s32"), integers(s64(), "s64");
    auto ordered = [](auto zero, const std::string &type) {
        typedef decltype(zero) T;
        t["setp.eq." + type] = compare<T>([](T a, T b) { return a == b; });
        t["setp.ne." + type] = compare<T>([](T a, T b) { return (a < b) || (a > b); });
        t["setp.lt." + type] = compare<T>([](T a, T b) { return a < b; });
        t["setp.le." + type] = compare<T>([](T a, T b) { return a <= b; });
        t["setp.gt." + type] = compare<T>([](T a, T b) { return a > b; });
        t["setp.ge." + type] = compare<T>([](T a, T b) { return a >= b; });
        t["selp." + type] = select<T>();
        t["mov." + type] = move<T>();
    };
    ordered(u16(), "u16"), ordered(u32(), "u32"), ordered(u64(), "u64");
    ordered(s16(), "s16"), ordered(s32(), "s32"), ordered(s64(), "s64");
    ordered(u16(), "b16"), ordered(u32(), "b32"), ordered(u64(), "b64");
    ordered(f32(), "f32"), ordered(f64(), "f64");
    auto bits = [](auto zero, const std::string &type) {
        typedef decltype(zero) T;
        t["and." + type] = of2<T>([](T a, T b) { return static_cast<T>(a & b); });
        t["or." + type] = of2<T>([](T a, T b) { return static_cast<T>(a | b); });
        t["xor." + type] = of2<T>([](T a, T b) { return static_cast<T>(a ^ b); });
        t["not." + type] = of1<T>([](T a) { return static_cast<T>(~a); });
        t["shl." + type] = from2<T, T, u32>(
            [](T a, u32 n) { return static_cast<T>(n < sizeof(T) * 8 ? a << n : 0); });
    };
    bits(u16(), "b16"), bits(u32(), "b32"), bits(u64(), "b64");
    auto floats = [](auto zero, const std::string &type) {
        typedef decltype(zero) T;
        for (const char *rn : {".", ".rn."}) {
            t[std::string("add") + rn + type] = of2<T>([](T a, T b) { return a + b; });
            t[std::string("sub") + rn + type] = of2<T>([](T a, T b) { return a - b; });
            t[std::string("mul") + rn + type] = of2<T>([](T a, T b) { return a * b; });
        }
        t["fma.rn." + type] = of3<T>([](T a, T b, T c) { return std::fma(a, b, c); });
        t["div.rn." + type] = of2<T>([](T a, T b) { return a / b; });
        t["rcp.rn." + type] = of1<T>([](T a) { return 1 / a; });
        t["sqrt.rn." + type] = of1<T>([](T a) { return std::sqrt(a); });
        t["abs." + type] = of1<T>([](T a) { return std::fabs(a); });
        t["neg." + type] = of1<T>([](T a) { return -a; });
        /* of a the sign, of b the rest */
        t["copysign." + type] = of2<T>([](T a, T b) { return std::copysign(b, a); });
        t["min." + type] = of2<T>([](T a, T b) { return best<T, false>(a, b); });
        t["max." + type] = of2<T>([](T a, T b) { return best<T, true>(a, b); });
        t["setp.equ." + type] = compare<T>([](T a, T b) { return !(a < b || a > b); });
        t["setp.neu." + type] = compare<T>([](T a, T b) { return !(a == b); });
        t["setp.ltu." + type] = compare<T>([](T a, T b) { return !(a >= b); });
        t["setp.leu." + type] = compare<T>([](T a, T b) { return !(a > b); });
        t["setp.gtu." + type] = compare<T>([](T a, T b) { return !(a <= b); });
        t["setp.geu." + type] = compare<T>([](T a, T b) { return !(a < b); });
        t["setp.num." + type] = compare<T>([](T a, T b) { return a == a && b == b; });
        t["setp.nan." + type] = compare<T>([](T a, T b) { return a != a || b != b; });
    };
    floats(f32(), "f32"), floats(f64(), "f64");

    t["fma.minus.f32"] = of3<f32>([](f32 a, f32 b, f32 c) { return std::fma(a, b, -c); });
    t["fma.from.f32"] = of3<f32>([](f32 a, f32 b, f32 c) { return std::fma(-a, b, c); });
    auto fma = [](f32 a, f32 b, f32 c) { return std::fma(a, b, c); };
    auto add = [](f32 a, f32 b) { return a + b; };
    t["fma.rm.f32"] = {rounded<DOWN, run3<f32, f32, f32, f32, decltype(fma)>>, "4=444"};
    t["add.rz.f32"] = {rounded<TO_ZERO, run2<f32, f32, f32, decltype(add)>>, "4=44"};
    t["ex2.approx.f32"] = of1<f32>([](f32 a) { return exp2f(a); });
    t["ex2.approx.ftz.f32"] = of1<f32>([](f32 a) { return flushed(exp2f(flushed(a))); });
    t["rcp.approx.ftz.f32"] = of1<f32>([](f32 a) { return flushed(1 / flushed(a)); });
    /* 20 bits of the fraction, for who computes the rest of them */
    t["rcp.approx.ftz.f64"] = of1<f64>(
        [](f64 a) { return std::bit_cast<f64>(std::bit_cast<u64>(1 / a) & ~0xffffffffull); });
    auto product = [](f64 a, f64 b, f64) { return a * b; };
    auto sum = [](f64 a, f64 b, f64 c) { return a * b + c; };
    t["mul.f16x2"] = of2<u32>([](u32 a, u32 b) { return halves<decltype(product)>(a, b, 0); });
    t["fma.rn.f16x2"] =
        of3<u32>([](u32 a, u32 b, u32 c) { return halves<decltype(sum)>(a, b, c); });

    t["mul.wide.u16"] = from2<u32, u16, u16>([](u16 a, u16 b) { return u32(a) * b; });
    t["mul.wide.u32"] = from2<u64, u32, u32>([](u32 a, u32 b) { return u64(a) * b; });
    t["mul.wide.s32"] = from2<s64, s32, s32>([](s32 a, s32 b) { return s64(a) * b; });
    t["mul.hi.u32"] = of2<u32>([](u32 a, u32 b) { return static_cast<u32>(u64(a) * b >> 32); });
    t["mul.hi.u64"] = of2<u64>(
        [](u64 a, u64 b) { return static_cast<u64>(static_cast<unsigned __int128>(a) * b >> 64); });
    t["neg.s32"] = of1<u32>([](u32 a) { return -a; });
    t["neg.s64"] = of1<u64>([](u64 a) { return -a; });
    t["clz.b32"] = of1<u32>([](u32 a) { return static_cast<u32>(std::countl_zero(a)); });
    t["clz.b64"] = from1<u32, u64>([](u64 a) { return static_cast<u32>(std::countl_zero(a)); });
    t["popc.b32"] = of1<u32>([](u32 a) { return static_cast<u32>(std::popcount(a)); });
    t["prmt.b32"] = of3<u32>([](u32 a, u32 b, u32 c) { return permuted(a, b, c); });
    t["bfi.b32"] = {run_insert<u32>, "4=4444"};
    t["bfi.b64"] = {run_insert<u64>, "8=8844"};

    auto add3 = [](u64 a, u64 b, u64, u64 in) { return a + b + in; };
    auto sub3 = [](u64 a, u64 b, u64, u64 in) { return a - b - in; };
    auto low = [](u64 a, u64 b, u64 c, u64 in) { return (a * b & 0xffffffff) + c + in; };
    auto high = [](u64 a, u64 b, u64 c, u64 in) { return (a * b >> 32) + c + in; };
    t["add.cc.u32"] = carry2<false, true>(add3), t["addc.cc.u32"] = carry2<true, true>(add3);
    t["addc.u32"] = carry2<true, false>(add3), t["sub.cc.u32"] = carry2<false, true>(sub3);
    t["subc.cc.u32"] = carry2<true, true>(sub3), t["subc.u32"] = carry2<true, false>(sub3);
    t["mad.lo.cc.u32"] = carry3<false, true>(low), t["madc.lo.cc.u32"] = carry3<true, true>(low);
    t["madc.hi.cc.u32"] = carry3<true, true>(high), t["madc.hi.u32"] = carry3<true, false>(high);

    t["and.pred"] = preds([](u32 a, u32 b) { return a & b; });
    t["or.pred"] = preds([](u32 a, u32 b) { return a | b; });
    t["xor.pred"] = preds([](u32 a, u32 b) { return a ^ b; });
    t["not.pred"] = pred1([](u32 a, u32) { return ~a; });
    t["mov.pred"] = pred1([](u32 a, u32) { return a; }, INSN_SPREADS);
    t["shfl.sync.up.b32"] = {shuffle<UP>, "4p=4444"};
    t["shfl.sync.down.b32"] = {shuffle<DOWN_BY>, "4p=4444"};
    t["shfl.sync.bfly.b32"] = {shuffle<ACROSS>, "4p=4444"};
    t["shfl.sync.idx.b32"] = {shuffle<INDEX>, "4p=4444"};
    t["vote.sync.ballot.b32"] = {vote_ballot, "4=p4"};
    t["vote.sync.all.pred"] = {vote<true>, "p=p4"};
    t["vote.sync.any.pred"] = {vote<false>, "p=p4"};
    t["cvta.to.global.u64"] = move<u64>(); /* one address for both */
    t["cvta.shared.u64"] = of1<u64>([](u64 a) { return a | 1ull << 63; }); /* where nothing is */

    t["bar.sync"] = {warp_barrier, "=4"};
    t["bar.warp.sync"] = {warp_sync, "=4"};
    t["ret"] = t["exit"] = {warp_exit, "="};
    t["griddepcontrol.launch_dependents"] = {nothing, "="};
    t["griddepcontrol.wait"] = {warp_wait_before, "="};
    t["membar.gl"] = t["membar.cta"] = {nothing, "="}; /* one order for all */
    t["atom.shared.add.u32"] = t["atom.global.add.u32"] = {atom_add, "4=a4"};
    t["atom.global.or.b32"] = {atom_or, "4=a4"};
    t["cp.async.cg.shared.global"] = {cp_async, "=aa44"};
    t["cp.async.commit_group"] = {cp_async_commit, "="};
    t["cp.async.wait_group"] = {cp_async_wait, "=4"};
    t["cp.async.wait_all"] = {cp_async_wait_all, "="};
    t["fence.proxy.async"] = {fence_proxy, "="};
    t["mbarrier.init.shared::cta.b64"] = {mbarrier_init, "=a4", INSN_BULK};
    t["fence.mbarrier_init.release.cluster"] = {mbarrier_fence, "="};
    t["mbarrier.arrive.shared::cta.b64"] = {mbarrier_arrive, "8=a"};
    t["mbarrier.arrive.expect_tx.shared::cta.b64"] = {mbarrier_arrive, "8=a4"};
    t["mbarrier.try_wait.parity.shared::cta.b64"] = {mbarrier_try_wait, "p=a4"};
    t["cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"] = {bulk_copy, "=aa4a"};
    t["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] = {ldmatrix_x4, "4444=a"};
    t["ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"] = {ldmatrix_x4_trans, "4444=a"};
    const std::string mma = "mma.sync.aligned.m16n8k16.row.col.f32.";
    t[mma + "f16.f16.f32"] = {mma_f16, "4444=4444444444"};
    t[mma + "bf16.bf16.f32"] = {mma_bf16, "4444=4444444444"};
    /* D is written and, unless the predicate says not, read; scales and the way of B are numbers */
    static const struct {
        const char *shape;
        std::string operands;
    } wgmma[] = {{"m64n64k16", std::string(32, '4') + "=44448p444"},
                 {"m64n128k16", std::string(64, '4') + "=44448p444"}};
    for (const auto &s : wgmma) {
        const std::string op = std::string("wgmma.mma_async.sync.aligned.") + s.shape + ".f32.";
        t[op + "f16.f16"] = {wgmma_f16, s.operands.c_str(), INSN_WGMMA};
        t[op + "bf16.bf16"] = {wgmma_bf16, s.operands.c_str(), INSN_WGMMA};
    }
    t["wgmma.fence.sync.aligned"] = {wgmma_fence, "="};
    t["wgmma.commit_group.sync.aligned"] = {wgmma_commit, "="};
    t["wgmma.wait_group.sync.aligned"] = {wgmma_wait, "=4"};
    return t;
}

} // namespace

const form_of *form_find(const std::string &op)
{
    const auto found = table().find(op);
    return found == table().end() ? nullptr : &found->second;
}
