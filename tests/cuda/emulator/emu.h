/* What tests may ask of the emulation itself; not CUDA's. C and C++.
 *
 * A program error (out of bounds, divergence at a barrier, a copy outside an allocation, ...) is
 * reported: one line on standard error, the launch is abandoned, and calls that wait return
 * cudaErrorLaunchFailure or cudaErrorIllegalAddress from then on, as on a device. A program that
 * ends with a report that no emu_take_report has taken exits with EMU_EXIT. */
#ifndef EMU_H
#define EMU_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { EMU_EXIT = 97 };

/* Orders of blocks, warps, lanes and streams: 0 the plain ones, 1 all reversed, others drawn. At
 * start from WEIR_EMU_SEED, else 0. */
void emu_set_seed(uint64_t seed);
uint64_t emu_seed(void);

/* The first report since the last call and how many there were, or NULL and 0; valid until the next
 * report. Clears the error that stays. */
const char *emu_take_report(unsigned *n);

/* The device is lost, as by a program error; any thread. */
void emu_lose_device(void);

/* Since the start of the program; allocations_now: of either kind, that were not freed. */
struct emu_figures {
    uint64_t launches, blocks, threads, switches, copies, device_allocations, host_allocations;
    uint64_t allocations_now;
};
struct emu_figures emu_get_figures(void);

/* WEIR_EMU_CAPTURES counts from here on. */
void emu_count_captures_from_here(void);

/* How often the driver was looked for while CUDA_MODULE_LOADING did not say EAGER. */
extern int emu_lazy_calls;

#ifdef __cplusplus
}
#endif

#endif
