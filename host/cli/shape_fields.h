/* shape_fields.h - the shape structs as tables, so that text like "nk=16" can fill them. */
#ifndef GDN_SHAPE_FIELDS_H
#define GDN_SHAPE_FIELDS_H

#include "gdn.h"
#include <stdbool.h>

enum { CLI_U32, CLI_U64, CLI_F32 };

typedef struct cli_word {
    const char *name; /* NULL ends a list */
    uint32_t value;
} cli_word;

typedef struct cli_field {
    const char *name;
    uint32_t offset;
    uint32_t kind;         /* CLI_U32, ...                                       */
    const cli_word *words; /* names a value may have besides its number, or NULL */
} cli_field;

typedef struct cli_shape {
    uint32_t op;
    uint32_t size; /* of the struct */
    const cli_field *fields;
    uint32_t n_fields;
    uint32_t n_u32;
    const char *const *u32; /* names of the launch's counts, in order */
    uint32_t required;      /* bit i: count i may not be left out where others are given */
} cli_shape;

/* Room for any shape. */
typedef union cli_any_shape {
    gdn_shape base;
    gdn_rule_shape rule;
    gdn_conv_shape conv;
    gdn_gates_shape gates;
    gdn_ba_shape ba;
    gdn_norm_shape norm;
    gdn_flag_shape flag;
    gdn_state_shape state;
    gdn_w4a4_shape w4a4;
    gdn_step_shape step;
} cli_any_shape;

const cli_shape *cli_shape_of(uint32_t op); /* NULL: no such operation */

#endif
