/* What happened to a request, and when; for engine/ only. Written by the engine thread into the
 * request's own array, read by its owner after the terminal event. When the array is full, events
 * are counted instead; submission, first token and end have their own fields and are never lost. */
#ifndef WEIR_ENGINE_TIMELINE_H
#define WEIR_ENGINE_TIMELINE_H

#include "engine/step.h"

/* A step was planned: who came in, was put back, or began or ended to wait for the tier. */
void timeline_planned(struct engine *eng, const struct sched_plan *plan, uint64_t now_us);

/* It ran: which chunks of prompts are computed. */
void timeline_computed(const struct step_batch *s, uint64_t now_us);

#endif
