/* programs/bench_report.c - one line for each combination: of a table for people, or JSON. stdout; the main thread. */
#include <inttypes.h>
#include <stdio.h>

#include "programs/bench_case.h"

void bench_report_begin(const struct bench_plan *plan) {
    char unit[16];

    if (plan->json)
        return;
    (void)snprintf(unit, sizeof(unit), "%s/s", plan->unit->name);
    printf("%-5s %-6s %9s %6s %7s %11s %9s %9s %9s %9s %10s %8s %9s\n", "oper", "path", "block", "batch", "threads",
           "ops/s", unit, "p50 us", "p90 us", "p99 us", "max us", "failed", "CPU s/GB");
    fflush(stdout);
}

static double microseconds(uint64_t nanoseconds) {
    return (double)nanoseconds / 1e3;
}

/* Per GB; 0 where nothing was moved. */
static double for_each_gb(double seconds, uint64_t bytes) {
    return bytes > 0 ? seconds / ((double)bytes / 1e9) : 0;
}

static double rate(double count, double seconds) {
    return seconds > 0 ? count / seconds : 0;
}

static void report_json(const struct bench_plan *plan, const struct bench_case *what,
                        const struct bench_result *result) {
    const struct bench_histogram *times = &result->times;

    printf("{\"operation\":\"%s\",\"path\":\"%s\",\"block_size\":%" PRIu64 ",\"batch_size\":%" PRIu64
           ",\"threads\":%" PRIu64 ",\"pattern\":\"%s\",\"memory\":\"%s\",\"checksum\":%s,\"busy_poll_us\":%" PRIu32
           ",\"verified\":%s",
           bench_operation_name(what->operation), result->path, what->block, what->batch, what->threads,
           bench_pattern_name(plan->pattern), plan->ordinary ? "ordinary" : "mapped",
           (plan->engine.flags & MC_ENGINE_CHECKSUM) != 0 ? "true" : "false", plan->engine.busy_poll_us,
           plan->verify ? "true" : "false");
    printf(",\"seconds\":%.6f,\"operations\":%" PRIu64 ",\"ops_per_s\":%.1f,\"gb_per_s\":%.6f", result->seconds,
           result->operations, rate((double)result->operations, result->seconds),
           rate((double)result->bytes / 1e9, result->seconds));
    printf(",\"p50_us\":%.3f,\"p90_us\":%.3f,\"p99_us\":%.3f,\"max_us\":%.3f", microseconds(bench_quantile(times, 500)),
           microseconds(bench_quantile(times, 900)), microseconds(bench_quantile(times, 990)),
           microseconds(times->largest));
    printf(",\"failures\":%" PRIu64 ",\"wrong\":%" PRIu64 ",\"cpu_s_per_gb\":%.6f,\"target_cpu_s_per_gb\":",
           result->failures, result->wrong, for_each_gb(result->cpu, result->bytes));
    if (result->target_cpu < 0)
        printf("null}\n");
    else
        printf("%.6f}\n", for_each_gb(result->target_cpu, result->bytes));
}

/* As it was given: 64K. */
static void print_size(uint64_t size) {
    static const char *const units[] = {"", "K", "M", "G", "T"};
    char text[32];
    size_t unit = 0;

    for (; unit + 1 < sizeof(units) / sizeof(units[0]) && size >= 1024 && size % 1024 == 0; unit++)
        size /= 1024;
    (void)snprintf(text, sizeof(text), "%" PRIu64 "%s", size, units[unit]);
    printf(" %9s", text);
}

static void report_line(const struct bench_plan *plan, const struct bench_case *what,
                        const struct bench_result *result) {
    const struct bench_histogram *times = &result->times;
    double cpu = result->cpu + (result->target_cpu > 0 ? result->target_cpu : 0);

    printf("%-5s %-6s", bench_operation_name(what->operation), result->path);
    print_size(what->block);
    printf(" %6" PRIu64 " %7" PRIu64 " %11.0f %9.*f", what->batch, what->threads,
           rate((double)result->operations, result->seconds), plan->precision,
           rate((double)result->bytes / plan->unit->bytes, result->seconds));
    printf(" %9.1f %9.1f %9.1f %10.1f %8" PRIu64 " %9.2f\n", microseconds(bench_quantile(times, 500)),
           microseconds(bench_quantile(times, 900)), microseconds(bench_quantile(times, 990)),
           microseconds(times->largest), result->failures + result->wrong, for_each_gb(cpu, result->bytes));
}

void bench_report(const struct bench_plan *plan, const struct bench_case *what, const struct bench_result *result) {
    if (plan->json)
        report_json(plan, what, result);
    else
        report_line(plan, what, result);
    fflush(stdout);
}
