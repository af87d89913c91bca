/* Arithmetic of a 16-bit format and of pairs of it: each operation is rounded once, to nearest and
 * even. Included once for each format (cuda_fp16.h, cuda_bf16.h), which says what EMU_HALF,
 * EMU_PAIR and EMU_RAW are. */
/* Sums to odd, products exact, in f64; a quotient of so few bits is rounded by f32 without harm. */
static inline EMU_HALF __hadd(EMU_HALF a, EMU_HALF b)
{
    return EMU_HALF(emu_sum_to_odd(float(a), float(b)));
}
static inline EMU_HALF __hsub(EMU_HALF a, EMU_HALF b)
{
    return EMU_HALF(emu_sum_to_odd(float(a), -float(b)));
}
static inline EMU_HALF __hmul(EMU_HALF a, EMU_HALF b)
{
    return EMU_HALF(static_cast<double>(float(a)) * static_cast<double>(float(b)));
}
static inline EMU_HALF __hdiv(EMU_HALF a, EMU_HALF b)
{
    return EMU_HALF(float(a) / float(b));
}
static inline EMU_HALF __hfma(EMU_HALF a, EMU_HALF b, EMU_HALF c)
{
    double product = static_cast<double>(float(a)) * static_cast<double>(float(b));
    return EMU_HALF(emu_sum_to_odd(product, static_cast<double>(float(c))));
}
static inline EMU_HALF __hneg(EMU_HALF a)
{
    return EMU_HALF(EMU_RAW{static_cast<unsigned short>(a.bits ^ 0x8000u)});
}
static inline EMU_PAIR __hmul2(EMU_PAIR a, EMU_PAIR b)
{
    return EMU_PAIR(__hmul(a.x, b.x), __hmul(a.y, b.y));
}
static inline EMU_PAIR __hfma2(EMU_PAIR a, EMU_PAIR b, EMU_PAIR c)
{
    return EMU_PAIR(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}
static inline bool __hlt(EMU_HALF a, EMU_HALF b)
{
    return float(a) < float(b);
}
static inline bool __hgt(EMU_HALF a, EMU_HALF b)
{
    return float(a) > float(b);
}
static inline bool __heq(EMU_HALF a, EMU_HALF b)
{
    return float(a) == float(b);
}
static inline EMU_HALF operator+(EMU_HALF a, EMU_HALF b)
{
    return __hadd(a, b);
}
static inline EMU_HALF operator-(EMU_HALF a, EMU_HALF b)
{
    return __hsub(a, b);
}
static inline EMU_HALF operator*(EMU_HALF a, EMU_HALF b)
{
    return __hmul(a, b);
}
static inline EMU_HALF operator/(EMU_HALF a, EMU_HALF b)
{
    return __hdiv(a, b);
}
static inline EMU_HALF operator-(EMU_HALF a)
{
    return __hneg(a);
}
static inline bool operator<(EMU_HALF a, EMU_HALF b)
{
    return __hlt(a, b);
}
static inline bool operator>(EMU_HALF a, EMU_HALF b)
{
    return __hgt(a, b);
}
static inline bool operator==(EMU_HALF a, EMU_HALF b)
{
    return __heq(a, b);
}
#undef EMU_HALF
#undef EMU_PAIR
#undef EMU_RAW
