/* store/segment_memory.c - see segment_memory.h. What a peer still reaches is never unmapped: it is leaked. */
#include "store/segment_memory.h"

#include <stdlib.h>

#include "allocator/host_memory.h"
#include "base/clock.h"
#include "base/status.h"
#include "transfer/registry.h"

#define PIN_TABLES 128u
#define UNREGISTER_TIME CLOCK_SECOND

void segment_memory_withdraw(struct segment_memory *memory) {
    void *const address[2] = {memory->base, memory->pins};

    for (size_t i = 0; i < 2; i++)
        if (memory->registered[i] && registry_remove(memory->engine->registry, (uint64_t)(uintptr_t)address[i],
                                                     clock_after(clock_now(), UNREGISTER_TIME), NULL) == MC_OK)
            memory->registered[i] = false;
}

static void destroy(struct ref *ref) {
    struct segment_memory *memory = list_entry(ref, struct segment_memory, ref);

    segment_memory_withdraw(memory);
    for (size_t i = 0; i < 2; i++)
        if (memory->ids[i] != 0 && !memory->registered[i])
            (void)host_memory_free(memory->ids[i]);
    if (!memory->registered[0])
        file_memory_unmap(&memory->file);
    free(memory);
}

static int32_t obtain(struct segment_memory *memory, const struct segment_source *source, struct mc_error *error) {
    uint64_t rounded = (source->size + 4095) / 4096 * 4096;
    void *base = NULL, *pins = NULL;
    int32_t status;

    if (source->path != NULL) {
        status = file_memory_map(source->path, source->offset, source->size, &memory->file, error);
        base = memory->file.address;
        memory->size = memory->file.size;
    } else {
        status = host_memory_reserve(rounded, &memory->ids[0], &base, error);
        memory->size = rounded;
    }
    if (status == MC_OK)
        status = host_memory_reserve(PIN_TABLES * sizeof(struct pin_table), &memory->ids[1], &pins, error);
    memory->base = base;
    memory->pins = pins;
    memory->pin_tables = PIN_TABLES;
    return status;
}

int32_t segment_memory_new(struct engine *engine, const struct segment_source *source,
                           struct segment_memory **ret_memory, struct mc_error *error) {
    struct segment_memory *memory = calloc(1, sizeof(*memory));
    int32_t status;

    if (memory == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    ref_init(&memory->ref, destroy);
    memory->engine = engine;
    memory->file.fd = -1;
    status = obtain(memory, source, error);
    for (size_t i = 0; i < 2 && status == MC_OK; i++) {
        void *const address[2] = {memory->base, memory->pins};
        const uint64_t sizes[2] = {memory->size, PIN_TABLES * sizeof(struct pin_table)};

        status = registry_add(engine->registry, (uint64_t)(uintptr_t)address[i], sizes[i], "*",
                              MC_REMOTE_READ | MC_REMOTE_WRITE, error);
        memory->registered[i] = status == MC_OK;
    }
    if (status != MC_OK)
        ref_drop(&memory->ref);
    else
        *ret_memory = memory;
    return status;
}
