/* directory_contract.h - what the tests of directories share. The suite is one program, run once for each kind. */
#ifndef MC_TESTS_DIRECTORY_CONTRACT_H
#define MC_TESTS_DIRECTORY_CONTRACT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "metadata/directory.h"

extern bool over_http;  /* else over p2p */
extern int server_port; /* of the metadata server */

/* Opens a directory: over http the server's page `path`, which must not fail. */
struct directory *open_at(const char *path);
struct directory *open_kind(void); /* well-behaved, of the kind under test */

/* An empty one, this thread's. */
struct mc_error *new_error(void);

#define EXPECT_STATUS(wanted, call) expect_status((wanted), (call), #call, __FILE__, __LINE__)
void expect_status(int32_t wanted, int32_t got, const char *call, const char *file, int line);

/* The words of the last failure have these. */
void expect_words(const char *words);

extern const struct CMUnitTest names_tests[];
extern const size_t names_test_count;
extern const struct CMUnitTest server_tests[]; /* of http only */
extern const size_t server_test_count;

#endif
