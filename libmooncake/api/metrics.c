/* api/metrics.c - what an engine counts, for those who watch it. */
#include <mooncake/transfer.h>

#include "api/handles.h"
#include "base/writer.h"

int64_t mc_engine_metrics(mc_engine *handle, uint32_t format, char *text, size_t size) {
    struct engine *engine;
    struct writer writer;
    int32_t status;

    if ((text == NULL && size > 0) || (format != MC_METRICS_JSON && format != MC_METRICS_PROMETHEUS))
        return MC_ERR_INVALID_ARGUMENT;
    status = engine_call_begin(handle, &engine, NULL);
    if (status != MC_OK)
        return status;
    writer_init(&writer, text, size);
    engine_metrics(engine, format, &writer);
    engine_call_end(engine);
    return (int64_t)writer.length;
}
