/* programs/mooncake_bench.c - measures the engine between two processes.
 *
 *   mooncake_bench transfer [flags]      also, by the name of the reference's program: transfer_engine_bench [flags]
 *
 * One process is the target, the other the initiator; without --mode and --segment_id a child is the target. Exit
 * status: 0, also after a signal; 1 if it can't be measured, a request failed or bytes were wrong; 2 for wrong flags.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs/bench_end.h"
#include "programs/signals.h"

#define PROGRAM "mooncake_bench"
#define ALIAS "transfer_engine_bench"
#define PURPOSE "moves bytes between two processes, and says how fast"

static const char *called = PROGRAM; /* as which program */

/* ---- Alone: the target is a child ---- */

/* In the child; `ready` takes its one line. */
static void run_child(struct bench_plan *plan, pid_t parent, int ready) {
    FILE *out = fdopen(ready, "w");
    struct address_text parts;

    /* It ends with its parent, and when that says so: a terminal's interrupt goes to both, and is the parent's. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN);
    if (out == NULL || getppid() != parent || address_parse(plan->listen, &parts, NULL) != MC_OK)
        _exit(1);
    address_join(parts.host, 0, plan->listen);
    plan->engine.name = NULL;
    plan->engine.directory = "p2p";
    _exit(bench_target(plan, out));
}

/* What stands behind " at " in the child's line; false: it has ended. */
static bool read_address(int ready, char address[ADDRESS_TEXT_MAX]) {
    char line[ADDRESS_TEXT_MAX + 128];
    FILE *in = fdopen(ready, "r");
    const char *begin;
    bool found = in != NULL && fgets(line, sizeof(line), in) != NULL && (begin = strstr(line, " at ")) != NULL &&
                 sscanf(begin, " at %287s", address) == 1;

    if (in != NULL)
        (void)fclose(in);
    return found;
}

static int run_alone(struct bench_plan *plan) {
    char address[ADDRESS_TEXT_MAX];
    int ends[2], status = 1;
    pid_t parent = getpid(), child;

    if (pipe(ends) != 0) {
        fprintf(stderr, "%s: %s\n", called, strerror(errno));
        return 1;
    }
    fflush(NULL);
    child = fork();
    if (child == 0) {
        close(ends[0]);
        run_child(plan, parent, ends[1]);
    }
    close(ends[1]);
    if (child < 0) {
        fprintf(stderr, "%s: %s\n", called, strerror(errno));
        close(ends[0]);
        return 1;
    }
    if (read_address(ends[0], address)) {
        plan->segment = address;
        status = bench_initiator(plan, child);
        kill(child, SIGTERM);
    }
    (void)waitpid(child, NULL, 0);
    return status;
}

/* ---- The command line ---- */

static int begin(const struct flags *flags) {
    struct bench_plan plan;
    int status = bench_plan_make(flags, called, &plan);

    if (status >= 0)
        return status;
    signals_block();
    switch (plan.mode) {
    case BENCH_TARGET:
        return bench_target(&plan, stdout);
    case BENCH_INITIATOR:
        return bench_initiator(&plan, 0);
    default:
        return run_alone(&plan);
    }
}

static int usage(FILE *out) {
    fprintf(out,
            "%s %s - measures what this machine and network give\n\nUsage: %s transfer [flags]\n"
            "  transfer: " PURPOSE "; --help lists its flags\n",
            PROGRAM, MOONCAKE_VERSION, PROGRAM);
    return out == stdout ? 0 : 2;
}

int main(int argc, char **argv) {
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    const char *name = slash != NULL ? slash + 1 : argc > 0 ? argv[0] : "";

    if (strcmp(name, ALIAS) == 0) {
        called = ALIAS;
        return flags_main(bench_flags, bench_flag_count, argc, argv, ALIAS, PURPOSE, NULL, begin);
    }
    if (argc < 2)
        return usage(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-help") == 0)
        return usage(stdout);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-version") == 0) {
        printf("%s %s\n", PROGRAM, MOONCAKE_VERSION);
        return 0;
    }
    if (strcmp(argv[1], "transfer") != 0) {
        fprintf(stderr, "%s: \"%.80s\" isn't a command; there is: transfer\n", PROGRAM, argv[1]);
        return 2;
    }
    return flags_main(bench_flags, bench_flag_count, argc - 1, argv + 1, PROGRAM " transfer", PURPOSE, NULL, begin);
}
