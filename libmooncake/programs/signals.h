/* programs/signals.h - how a program is told to end: SIGTERM or SIGINT, taken by waiting for them.
 *
 * signals_block must come before any thread is started. Afterwards these signals come from signals_wait alone, until
 * signals_release makes the next one end the process at once. For the main thread.
 */
#ifndef MC_PROGRAMS_SIGNALS_H
#define MC_PROGRAMS_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

/* Also lets writes to closed pipes fail instead of killing the process. */
void signals_block(void);

/* Waits at most `timeout` nanoseconds (CLOCK_NEVER: no limit) for one of the signals; true: it came. */
bool signals_wait(uint64_t timeout);

void signals_release(void);

#endif
