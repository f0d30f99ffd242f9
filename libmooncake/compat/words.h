/* compat/words.h - what went wrong, in words, for interfaces that only return numbers. Threads: any. */
#ifndef MC_COMPAT_WORDS_H
#define MC_COMPAT_WORDS_H

/* Writes one line to stderr, at most ten a second, unless MC_LOG_LEVEL is "error". Keeps errno. */
__attribute__((format(printf, 1, 2))) void words_warn(const char *format, ...);

#endif
