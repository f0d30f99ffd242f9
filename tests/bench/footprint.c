/* tests/bench/footprint.c - reads /proc/PID/status and the scheduler's nanoseconds of each thread. */
#include "footprint.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "work.h"

static uint64_t kilobytes(const char *line, const char *name) {
    unsigned long long value;

    if (strncmp(line, name, strlen(name)) != 0 || sscanf(line + strlen(name), ": %llu", &value) != 1)
        return 0;
    return value << 10;
}

/* The processor time that stat and getrusage tell comes in ticks; this is exact. */
static double cpu_of_threads(pid_t process, unsigned *ret_threads) {
    char path[300];
    DIR *threads;
    struct dirent *entry;
    double seconds = 0;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)process);
    threads = opendir(path);
    CHECK_SYSTEM(threads != NULL);
    *ret_threads = 0;
    while ((entry = readdir(threads)) != NULL) {
        unsigned long long nanoseconds;
        FILE *file;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)process, entry->d_name);
        file = fopen(path, "re");
        if (file == NULL)
            continue; /* it has just ended */
        if (fscanf(file, "%llu", &nanoseconds) == 1)
            seconds += (double)nanoseconds * 1e-9;
        fclose(file);
        (*ret_threads)++;
    }
    closedir(threads);
    return seconds;
}

struct footprint footprint_of(pid_t process) {
    struct footprint found = {0};
    char path[64], line[256];
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)process);
    file = fopen(path, "re");
    CHECK_SYSTEM(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        found.private_bytes += kilobytes(line, "RssAnon");
        found.shared_bytes += kilobytes(line, "RssShmem");
        found.file_bytes += kilobytes(line, "RssFile");
    }
    fclose(file);
    found.cpu_seconds = cpu_of_threads(process, &found.threads);
    return found;
}
