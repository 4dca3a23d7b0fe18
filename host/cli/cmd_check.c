/* cmd_check.c - `gdn check`: the self test, or a recorded layer, or a recorded text. */
#include "check.h"
#include "check_self.h"
#include <getopt.h>
#include <string.h>

static const char help[] =
    "usage: gdn check [options]                          every operation against f64 references\n"
    "       gdn check --golden FILE [options]            a recorded layer, stage by stage\n"
    "       gdn check --model DIR --replay FILE [options] a recorded text, teacher-forced\n"
    "  --golden FILE       safetensors recording of one layer: weights, inputs, every intermediate, states\n"
    "  --model DIR         checkpoint: config.json, model.safetensors\n"
    "  --replay FILE       greedy.json: prompts, bytes and gaps recorded with the checkpoint\n"
    "  --dtype f32|bf16    activations (default f32, on a GPU bf16); the self test runs every type of the target\n" CLI_COMMON_HELP
    "exit code: 0 all within their bounds, 1 something is not, 2 wrong usage\n";

int gdn_cmd_check(int argc, char **argv) {
    static const struct option options[] = { CLI_COMMON_OPTIONS,      { "golden", 1, 0, 'g' }, { "model", 1, 0, 'm' },
                                             { "replay", 1, 0, 'r' }, { "dtype", 1, 0, 'd' },  { 0, 0, 0, 0 } };
    cli_common c;
    const char *golden = NULL, *model = NULL, *replay = NULL, *dtype = NULL;
    cli_common_init(&c, "check");
    for (int v; (v = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (cli_common_option(&c, v, optarg)) continue;
        switch (v) {
        case 'g': golden = optarg; break;
        case 'm': model = optarg; break;
        case 'r': replay = optarg; break;
        case 'd': dtype = optarg; break;
        default: return CLI_USAGE; /* getopt has said what is wrong */
        }
    }
    if (c.help) return fputs(help, stdout), CLI_OK;
    if (optind < argc) return cli_error(&c, "unexpected argument '%s'", argv[optind]), CLI_USAGE;
    if (dtype && strcmp(dtype, "f32") && strcmp(dtype, "bf16"))
        return cli_error(&c, "--dtype is '%s', expected f32 or bf16", dtype), CLI_USAGE;
    if (golden && (model || replay)) return cli_error(&c, "--golden goes with neither --model nor --replay"), CLI_USAGE;
    if (!model != !replay) return cli_error(&c, "--model and --replay go together"), CLI_USAGE;
    const uint32_t type = !dtype ? 0 : strcmp(dtype, "bf16") == 0 ? GDN_BF16 : GDN_F32;
    if (golden) return cli_check_golden(&c, golden, type);
    if (model) return cli_check_model(&c, model, replay, type);
    if (dtype) return cli_error(&c, "--dtype is for --golden and --model"), CLI_USAGE;
    return cli_check_self(&c);
}
