/* simulate.c - hit ratios of the master's eviction policies over a trace.
 *
 *   simulate POLICY CAPACITY... < REQUESTS
 *
 * A request is a line of block ids, numbers with spaces in between. Prints a JSON object: the ratio of blocks found, within
 * the prefix that all hit, at each capacity in blocks.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"

/* False: it isn't a line of numbers. */
static bool read_request(struct trace *trace, const char *line) {
    char *end;

    for (;;) {
        line += strspn(line, " \t\r\n");
        if (*line == '\0')
            break;
        if (*line < '0' || *line > '9')
            return false;
        trace_add(trace, strtoull(line, &end, 10));
        line = end;
    }
    trace_end(trace);
    return true;
}

int main(int argc, char **argv) {
    const struct policy_ops *policy = argc > 2 ? policy_find(argv[1]) : NULL;
    struct trace trace = {0};
    char *line = NULL;
    size_t size = 0;
    int status = 0;

    if (policy == NULL) {
        fprintf(stderr, "usage: %s lru|hazard CAPACITY... < REQUESTS\n", argv[0]);
        return 2;
    }
    while (status == 0 && getline(&line, &size, stdin) > 0)
        if (!read_request(&trace, line))
            status = 2;
    if (status != 0)
        fprintf(stderr, "%s: line %zu is no request\n", argv[0], trace.count + 1);
    if (status == 0)
        printf("{\"policy\":\"%s\",\"accesses\":%zu", policy->name, trace.id_count);
    for (int i = 2; i < argc && status == 0; i++) {
        size_t capacity = (size_t)strtoull(argv[i], NULL, 10);
        uint64_t hits = cache_hits(policy, &trace, capacity > 0 ? capacity : 1);

        printf(",\"%zu\":%.4f", capacity, trace.id_count > 0 ? (double)hits / (double)trace.id_count : 0.0);
    }
    if (status == 0)
        printf("}\n");
    free(line);
    trace_clear(&trace);
    return status;
}
