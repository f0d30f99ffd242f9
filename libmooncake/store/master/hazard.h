/* store/master/hazard.h - how likely an object is read again, learned from what was.
 *
 * Ages count accesses, in bins of a third of an octave; a cell is a class of objects at an age. For each class and bin it
 * is counted how often an object was read at that age, and how long objects were that old in all; the quotient is the
 * hazard of being read. An object's worth at an age is the best rate of reads a span that begins there can have: reads
 * expected until any later age, by the time it takes until then. The cells are ranked by worth, the least first.
 *
 * Where little was seen the hazard is taken to fall as one by the age, as it does for what is forgotten in time, and a
 * class to differ from all others as it did at the bin before. Not thread-safe; uses no floating-point functions.
 */
#ifndef MC_STORE_MASTER_HAZARD_H
#define MC_STORE_MASTER_HAZARD_H

#include <stdbool.h>
#include <stdint.h>

#define HAZARD_CLASSES 5u
#define HAZARD_BINS 96u /* up to an age of 2^32 */
#define HAZARD_CELLS (HAZARD_CLASSES * HAZARD_BINS)

struct hazard {
    float reads[HAZARD_CLASSES][HAZARD_BINS]; /* at an age; decayed */
    float ends[HAZARD_CLASSES][HAZARD_BINS];  /* ages at which it ended: it was read, or forgotten; decayed */
    uint16_t ranked[HAZARD_CELLS];            /* class * HAZARD_BINS + bin, the least worth first */
};

/* Ranks by age alone: the oldest first. */
void hazard_init(struct hazard *hazard);

/* The bin of an age, and the least age of a bin; that of HAZARD_BINS ends the last. */
uint32_t hazard_bin(uint64_t age);
uint64_t hazard_bin_begin(uint32_t bin);

/* An object of this class ended an age: it was read again, or nobody watches it any more. */
void hazard_note(struct hazard *hazard, uint32_t class, uint64_t age, bool read);

/* Ranks anew. present[class][bin]: how many objects are of that class and age now, watched ones that were evicted too. */
void hazard_learn(struct hazard *hazard, const float present[HAZARD_CLASSES][HAZARD_BINS]);

#endif
