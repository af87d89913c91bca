/* The vector types of CUDA, for C and C++: plain structs with CUDA's alignment. */
#ifndef EMU_VECTOR_TYPES_H
#define EMU_VECTOR_TYPES_H

#define EMU_ALIGN(n) __attribute__((aligned(n)))

#define EMU_VECTORS(type, name, a2, a4)                                                            \
    struct EMU_ALIGN(sizeof(type)) name##1                                                         \
    {                                                                                              \
        type x;                                                                                    \
    };                                                                                             \
    struct EMU_ALIGN(a2) name##2                                                                   \
    {                                                                                              \
        type x, y;                                                                                 \
    };                                                                                             \
    struct name##3                                                                                 \
    {                                                                                              \
        type x, y, z;                                                                              \
    };                                                                                             \
    struct EMU_ALIGN(a4) name##4                                                                   \
    {                                                                                              \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    typedef struct name##1 name##1;                                                                \
    typedef struct name##2 name##2;                                                                \
    typedef struct name##3 name##3;                                                                \
    typedef struct name##4 name##4;

EMU_VECTORS(signed char, char, 2, 4)
EMU_VECTORS(unsigned char, uchar, 2, 4)
EMU_VECTORS(short, short, 4, 8)
EMU_VECTORS(unsigned short, ushort, 4, 8)
EMU_VECTORS(int, int, 8, 16)
EMU_VECTORS(unsigned, uint, 8, 16)
EMU_VECTORS(float, float, 8, 16)
EMU_VECTORS(long long, longlong, 16, 16)
EMU_VECTORS(unsigned long long, ulonglong, 16, 16)
EMU_VECTORS(double, double, 16, 16)
#undef EMU_VECTORS

struct dim3 {
    unsigned x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
    {
    }
#endif
};
typedef struct dim3 dim3;

#ifdef __cplusplus
#define EMU_MAKE(type, name)                                                                       \
    static inline name##1 make_##name##1(type x)                                                   \
    {                                                                                              \
        return name##1 {x};                                                                        \
    }                                                                                              \
    static inline name##2 make_##name##2(type x, type y)                                           \
    {                                                                                              \
        return name##2 {x, y};                                                                     \
    }                                                                                              \
    static inline name##3 make_##name##3(type x, type y, type z)                                   \
    {                                                                                              \
        return name##3 {x, y, z};                                                                  \
    }                                                                                              \
    static inline name##4 make_##name##4(type x, type y, type z, type w)                           \
    {                                                                                              \
        return name##4 {x, y, z, w};                                                               \
    }

EMU_MAKE(signed char, char)
EMU_MAKE(unsigned char, uchar)
EMU_MAKE(short, short)
EMU_MAKE(unsigned short, ushort)
EMU_MAKE(int, int)
EMU_MAKE(unsigned, uint)
EMU_MAKE(float, float)
EMU_MAKE(long long, longlong)
EMU_MAKE(unsigned long long, ulonglong)
EMU_MAKE(double, double)
#undef EMU_MAKE
#endif

#endif
