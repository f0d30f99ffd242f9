/* transports/shm/slots.h - the region page as its host sees it. One thread at a time, but for shm_slots_set. */
#ifndef MC_TRANSPORTS_SHM_SLOTS_H
#define MC_TRANSPORTS_SHM_SLOTS_H

#include <stdbool.h>

#include "transports/shm/page.h"
#include "transports/transport.h"

struct shm_slots;

/* Makes the page, empty. -1 with errno. */
int shm_slots_new(struct shm_slots **ret_slots);

/* NULL is fine; returns NULL. */
struct shm_slots *shm_slots_free(struct shm_slots *slots);

/* The page by a descriptor that can only be read; it stays the slots'. */
int shm_slots_fd(const struct shm_slots *slots);

/* Finds the region a slot, which it gets in page_slot, and opens that. Without one (there is none, or no memory)
 * page_slot is SHM_SLOTS. */
void shm_slots_open(struct shm_slots *slots, struct region *region);

/* Frees the region's slot. */
void shm_slots_close(struct shm_slots *slots, struct region *region);

/* Makes an open slot CLOSING, or OPEN again. Any thread, one at a time for the same slot. */
void shm_slots_set_state(struct shm_slots *slots, uint32_t slot, enum shm_state state);

/* For guests that have looked at the slot meanwhile: they look again. */
void shm_slots_note(struct shm_slots *slots, uint32_t slot);

/* The slot of the region in which these 8 bytes lie; SHM_SLOTS if there is none. */
uint32_t shm_slots_find(const struct shm_slots *slots, uint64_t address);

/* The region that is published there under that key, else NULL. Any slot number. */
const struct region *shm_slots_region(const struct shm_slots *slots, uint32_t slot, uint64_t key);

#endif
