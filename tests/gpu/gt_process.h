/* gt_process.h - programs started anew, each this program with --start or another word of gt_child.c; what they print, one "key value"
 * a line; temporary folders. */
#ifndef GDN_GPU_TEST_PROCESS_H
#define GDN_GPU_TEST_PROCESS_H

#include "gt.h"

enum { GT_OUT_BYTES = 1 << 16 };

/* Runs a shell command; out gets the beginning of what it printed. The exit status, -1 when it did not run. */
int gt_run(const char *command, char out[GT_OUT_BYTES]);
/* "key value" at the beginning of a line: the value; NULL, -1 without one. */
const char *gt_line_of(const char *out, const char *key);
double gt_value_of(const char *out, const char *key);
void gt_reason_of(const char *out, char why[200]);
/* One child with these variables; it must have come up with right results. */
bool gt_start(gt *t, const char *variables, char out[GT_OUT_BYTES]);
bool gt_folder(gt *t, char name[64]);
void gt_remove_folder(const char *name);
double gt_count_files(const char *where, const char *pattern);

/* ---- gt_race.c: children that meet each other ---- */
int gt_child_rounds(gt *t, char **argv); /* TARGET FOLDER RANK OF ROUNDS */
int gt_child_first(gt *t);
int gt_child_width(gt *t, const char *heads);

#endif
