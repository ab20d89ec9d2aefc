/* Made-up /sys and /proc trees, for test_cpus.c and test_room.c. */
#ifndef PYG_TESTS_TREE_H
#define PYG_TESTS_TREE_H

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static char root[PATH_MAX / 2];

/* Creates root/path with its folders. */
static void put(const char *path, const char *text) {
    char full[PATH_MAX];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; *p != '\0'; p++) {
        if (*p != '/') continue;
        *p = '\0';
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *file = fopen(full, "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0) CHECK(!"file written");
}

static void new_root(void) {
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/pyg_tree_XXXXXX", tmp != NULL ? tmp : "/tmp");
    CHECK(mkdtemp(root) != NULL);
}

static void drop_root(void) {
    char command[PATH_MAX];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    CHECK(system(command) == 0);
}

#endif
