/* cvt: from any type to any, by a table of the pairs that are used. */
#include "half.h"
#include "ptx.h"

#include <limits>
#include <string.h>
#include <type_traits>
#include <unordered_map>

namespace
{

struct f16 {
    uint16_t bits;
};
struct bf16 {
    uint16_t bits;
};
enum rounding { PLAIN, SATURATED, NEAREST, TO_ZERO, DOWN, UP };

template <class A> auto value(A a)
{
    if constexpr (std::is_same_v<A, f16>)
        return f32_of_f16(a.bits);
    else if constexpr (std::is_same_v<A, bf16>)
        return f32_of_bf16(a.bits);
    else
        return a;
}

template <rounding how, class T> T whole(T x)
{
    return how == NEAREST ? std::nearbyint(x)
           : how == DOWN  ? std::floor(x)
           : how == UP    ? std::ceil(x)
                          : std::trunc(x);
}

/* Beyond its range the integer nearest to it; 0 for what is no number. */
template <class D, class A> D clamped(A x)
{
    const A end = std::ldexp(A(1), std::numeric_limits<D>::digits);
    return x != x                                              ? 0
           : x >= end                                          ? std::numeric_limits<D>::max()
           : x < static_cast<A>(std::numeric_limits<D>::min()) ? std::numeric_limits<D>::min()
                                                               : static_cast<D>(x);
}

template <class D, class A, rounding how> D converted(A a)
{
    const auto x = value(a);
    typedef std::remove_const_t<decltype(x)> X;
    if constexpr (std::is_same_v<D, f16>)
        return {f16_of_f64(x)};
    else if constexpr (std::is_same_v<D, bf16>)
        return {bf16_of_f32(x)};
    else if constexpr (std::is_integral_v<D> && std::is_floating_point_v<X>)
        return clamped<D>(whole<how>(x));
    else if constexpr (how == SATURATED) /* to 0 .. 1 */
        return x > 0 ? x < 1 ? x : 1 : 0;
    else if constexpr (how != PLAIN)
        return whole<how>(x);
    else
        return static_cast<D>(x);
}

/* Into a register that may be wider: with the sign, if there is one. */
template <class D> void put(uint8_t *to, unsigned wide, D d)
{
    if constexpr (std::is_integral_v<D>) {
        const int64_t x = static_cast<int64_t>(d);
        memcpy(to, &x, wide);
    } else {
        memset(to, 0, wide);
        memcpy(to, &d, sizeof d);
    }
}

template <class D, class A, rounding how> void convert(warp &w, const insn &i, uint32_t m)
{
    uint8_t *d = w.at<uint8_t>(i.op[0]);
    const uint8_t *from = w.at<uint8_t>(i.op[1]);
    for (int l = 0; l < LANES; l++) {
        if (!(m >> l & 1))
            continue;
        A a;
        memcpy(&a, from + l * i.wide[1], sizeof a);
        put(d + l * i.wide[0], i.wide[0], converted<D, A, how>(a));
    }
}

/* The first operand becomes the upper half. */
template <class D> void pair(warp &w, const insn &i, uint32_t m)
{
    uint32_t *d = w.at<uint32_t>(i.op[0]);
    const float *a = w.at<float>(i.op[1]), *b = w.at<float>(i.op[2]);
    for (int l = 0; l < LANES; l++) {
        if (m >> l & 1) {
            d[l] = static_cast<uint32_t>(converted<D, float, PLAIN>(a[l]).bits) << 16 |
                   converted<D, float, PLAIN>(b[l]).bits;
        }
    }
}

std::unordered_map<std::string, form> forms;

template <class D, class A> void add(const char *d, const char *a)
{
    const std::string pair = std::string(".") + d + "." + a;
    constexpr bool from_float = !std::is_integral_v<A>, to_float = !std::is_integral_v<D>;
    if constexpr (from_float && sizeof(A) > 2 && (!to_float || std::is_same_v<D, A>)) {
        forms["cvt.rni" + pair] = convert<D, A, NEAREST>;
        forms["cvt.rzi" + pair] = convert<D, A, TO_ZERO>;
        forms["cvt.rmi" + pair] = convert<D, A, DOWN>;
        forms["cvt.rpi" + pair] = convert<D, A, UP>;
    }
    if constexpr (std::is_same_v<D, A> && std::is_floating_point_v<D>)
        forms["cvt.sat" + pair] = convert<D, A, SATURATED>;
    else if constexpr (!from_float || to_float)
        forms[(to_float && (!from_float || sizeof(D) < sizeof(A)) ? "cvt.rn" : "cvt") + pair] =
            convert<D, A, PLAIN>;
}
template <class D> void add_from_all(const char *d)
{
    add<D, uint8_t>(d, "u8"), add<D, uint16_t>(d, "u16"), add<D, uint32_t>(d, "u32");
    add<D, uint64_t>(d, "u64"), add<D, int8_t>(d, "s8"), add<D, int16_t>(d, "s16");
    add<D, int32_t>(d, "s32"), add<D, int64_t>(d, "s64"), add<D, float>(d, "f32");
    add<D, double>(d, "f64");
}

} // namespace

bool form_convert(const std::string &op, insn &i)
{
    if (forms.empty()) {
        add_from_all<uint8_t>("u8"), add_from_all<uint16_t>("u16"), add_from_all<uint32_t>("u32");
        add_from_all<uint64_t>("u64"), add_from_all<int8_t>("s8"), add_from_all<int16_t>("s16");
        add_from_all<int32_t>("s32"), add_from_all<int64_t>("s64"), add_from_all<float>("f32");
        add_from_all<double>("f64");
        add<float, f16>("f32", "f16"), add<float, bf16>("f32", "bf16");
        add<f16, float>("f16", "f32"), add<bf16, float>("bf16", "f32");
        forms["cvt.rn.f16x2.f32"] = pair<f16>;
        forms["cvt.rn.bf16x2.f32"] = pair<bf16>;
    }
    const auto found = forms.find(op);
    if (found == forms.end())
        return false;
    i.run = found->second;
    return true;
}
