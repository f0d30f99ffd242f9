/* store/master/hazard.c - counting, and ranking cells by what was counted. Owns nothing but the struct. */
#include "store/master/hazard.h"

#include <stdlib.h>
#include <string.h>

#define KEPT 0.9973f     /* of the counts, from one time of learning to the next: half of them in 256 */
#define DOUBT 1.0f       /* reads that the prior counts as */
#define FIRST_GUESS 4.0f /* the hazard of the youngest beside the mean of all ages, before anything is known */
#define SMALLEST 1e-12f

static const uint32_t thirds[3] = {1024, 1290, 1625}; /* 2^(0/3), 2^(1/3), 2^(2/3), times 1024 */

uint32_t hazard_bin(uint64_t age) {
    uint64_t size = age < UINT64_MAX ? age + 1 : age;
    uint32_t octave = 63u - (uint32_t)__builtin_clzll(size);
    uint64_t part = octave > 10 ? size >> (octave - 10) : size << (10 - octave); /* 1024 to 2047 */
    uint32_t bin = 3 * octave + (part >= thirds[1]) + (part >= thirds[2]);

    return bin < HAZARD_BINS ? bin : HAZARD_BINS - 1;
}

uint64_t hazard_bin_begin(uint32_t bin) {
    uint64_t scaled = (uint64_t)thirds[bin % 3] << bin / 3;

    return (scaled + 1023) / 1024 - 1;
}

void hazard_init(struct hazard *hazard) {
    memset(hazard, 0, sizeof(*hazard));
    for (uint32_t i = 0; i < HAZARD_CELLS; i++)
        hazard->ranked[i] = (uint16_t)(i % HAZARD_CLASSES * HAZARD_BINS + HAZARD_BINS - 1 - i / HAZARD_CLASSES);
}

void hazard_note(struct hazard *hazard, uint32_t class, uint64_t age, bool read) {
    uint32_t bin = hazard_bin(age);

    hazard->ends[class][bin] += 1;
    hazard->reads[class][bin] += read ? 1.0f : 0.0f;
}

static float width(uint32_t bin) {
    return (float)(hazard_bin_begin(bin + 1) - hazard_bin_begin(bin));
}

/* How long the class was at each age: those that ended later spent the whole bin, those that ended in it half of it. */
static void expose(const struct hazard *hazard, uint32_t class, const float *present, float *ret_exposed) {
    float older = 0;

    for (uint32_t bin = HAZARD_BINS; bin-- > 0;) {
        float here = hazard->ends[class][bin] + present[bin];

        ret_exposed[bin] = (older + here / 2) * width(bin);
        older += here;
    }
}

/* Reads by exposure; `prior` counts as much as DOUBT reads. */
static float rate(float reads, float exposed, float prior) {
    if (prior < SMALLEST)
        prior = SMALLEST;
    return (reads + DOUBT) / (exposed + DOUBT / prior);
}

/* The hazard of all classes together. */
static void learn_base(const struct hazard *hazard, float exposed[HAZARD_CLASSES][HAZARD_BINS], float *ret_base) {
    float reads[HAZARD_BINS] = {0}, all[HAZARD_BINS] = {0}, total_reads = 0, total = 1, prior;

    for (uint32_t bin = 0; bin < HAZARD_BINS; bin++) {
        for (uint32_t class = 0; class < HAZARD_CLASSES; class ++) {
            reads[bin] += hazard->reads[class][bin];
            all[bin] += exposed[class][bin];
        }
        total_reads += reads[bin];
        total += all[bin];
    }
    prior = total_reads / total * FIRST_GUESS;
    for (uint32_t bin = 0; bin < HAZARD_BINS; bin++) {
        if (bin > 0)
            prior *= (float)(hazard_bin_begin(bin) + 1) / (float)(hazard_bin_begin(bin + 1) + 1);
        ret_base[bin] = prior = rate(reads[bin], all[bin], prior);
    }
}

/* The best rate of reads over any span that begins at each bin. */
static void learn_worth(const float *hazards, float *ret_worth) {
    for (uint32_t from = 0; from < HAZARD_BINS; from++) {
        float reads = 0, time = 0, left = 1;

        ret_worth[from] = 0;
        for (uint32_t bin = from; bin < HAZARD_BINS && left > 1e-4f; bin++) {
            float expected = hazards[bin] * width(bin), stay = 1 / (1 + expected);

            reads += left * expected * stay;
            time += left * width(bin) * stay;
            left *= stay;
            if (time > 0 && reads > ret_worth[from] * time)
                ret_worth[from] = reads / time;
        }
    }
}

struct cell {
    float worth;
    uint16_t number;
};

/* Of equal worth the older goes first. */
static int compare(const void *one, const void *other) {
    const struct cell *a = one, *b = other;
    uint32_t bin_a = a->number % HAZARD_BINS, bin_b = b->number % HAZARD_BINS;

    if (a->worth != b->worth)
        return a->worth < b->worth ? -1 : 1;
    return bin_a > bin_b ? -1 : bin_a < bin_b ? 1 : (a->number > b->number) - (a->number < b->number);
}

void hazard_learn(struct hazard *hazard, const float present[HAZARD_CLASSES][HAZARD_BINS]) {
    float exposed[HAZARD_CLASSES][HAZARD_BINS], base[HAZARD_BINS], hazards[HAZARD_BINS], worth[HAZARD_BINS];
    struct cell cells[HAZARD_CELLS];

    for (uint32_t class = 0; class < HAZARD_CLASSES; class ++) {
        for (uint32_t bin = 0; bin < HAZARD_BINS; bin++) {
            hazard->reads[class][bin] *= KEPT;
            hazard->ends[class][bin] *= KEPT;
        }
        expose(hazard, class, present[class], exposed[class]);
    }
    learn_base(hazard, exposed, base);
    for (uint32_t class = 0; class < HAZARD_CLASSES; class ++) {
        float differs = 1;

        for (uint32_t bin = 0; bin < HAZARD_BINS; bin++) {
            hazards[bin] = rate(hazard->reads[class][bin], exposed[class][bin], base[bin] * differs);
            differs = hazards[bin] / base[bin];
        }
        learn_worth(hazards, worth);
        for (uint32_t bin = 0; bin < HAZARD_BINS; bin++)
            cells[class * HAZARD_BINS + bin] =
                (struct cell){.worth = worth[bin], .number = (uint16_t)(class * HAZARD_BINS + bin)};
    }
    qsort(cells, HAZARD_CELLS, sizeof(cells[0]), compare);
    for (uint32_t i = 0; i < HAZARD_CELLS; i++)
        hazard->ranked[i] = cells[i].number;
}
