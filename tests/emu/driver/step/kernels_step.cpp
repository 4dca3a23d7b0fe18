/* kernels_step.cpp - decode, verify and fold for the emulated device, in one of four forms (EMU_FORM_VK, EMU_FORM_NORM). Entries are
 * static, and classes that are others in another form have the form in their names: all four are in one library. */
#include "emu_driver.hpp"

#define EMU_NAMED_(name, vk, norm) name##_##vk##norm
#define EMU_NAMED(name, vk, norm)  EMU_NAMED_(name, vk, norm)
#define EMU_OF_FORM(name)          EMU_NAMED(name, EMU_FORM_VK, EMU_FORM_NORM)
#define gdn_state                  EMU_OF_FORM(gdn_state)
#define gdn_state_smem             EMU_OF_FORM(gdn_state_smem)
#define gdn_step_smem              EMU_OF_FORM(gdn_step_smem)
#define gdn_split_smem             EMU_OF_FORM(gdn_split_smem)
#define gdn_split_state            EMU_OF_FORM(gdn_split_state)
#define gdn_part_smem              EMU_OF_FORM(gdn_part_smem)
#define gdn_part_state             EMU_OF_FORM(gdn_part_state)
#define gdn_part_rows              EMU_OF_FORM(gdn_part_rows)
#define gdn_round_state            EMU_OF_FORM(gdn_round_state)
#define gdn_round_smem             EMU_OF_FORM(gdn_round_smem)
#define gdn_round_rows             EMU_OF_FORM(gdn_round_rows)
#define gdn_round_of               EMU_OF_FORM(gdn_round_of)
#define gdn_round_more             EMU_OF_FORM(gdn_round_more)
#define gdn_round_stay_smem        EMU_OF_FORM(gdn_round_stay_smem)
#define gdn_stay_smem              EMU_OF_FORM(gdn_stay_smem)
#define gdn_stay_alone             EMU_OF_FORM(gdn_stay_alone)
#define gdn_stay_part              EMU_OF_FORM(gdn_stay_part)
#define gdn_state16                EMU_OF_FORM(gdn_state16)
#define gdn_split16_smem           EMU_OF_FORM(gdn_split16_smem)
#define gdn_split16_state          EMU_OF_FORM(gdn_split16_state)

#include "gated_delta_rule_bf16_state.cu"
#include "gated_delta_rule_decode.cu"
#include "gated_delta_rule_wy.cu"
#include "gated_delta_rule_wy3.cu"
#include "gated_delta_rule_verify_split.cu"
#include "gated_delta_rule_wy4.cu"
#include "gated_delta_rule_wy4_round.cu"
#include "gated_delta_rule_wy4_woa.cu"
#include "gated_delta_rule_wyn.cu"

static const emu_driver::kernel step[] = {
    EMU_STEPS("gated_delta_rule_decode.cu", gated_delta_rule_decode),
    EMU_STEPS("gated_delta_rule_decode.cu", gated_delta_rule_decode_split),
    EMU_STEPS("gated_delta_rule_bf16_state.cu", gated_delta_rule_decode_bf16_state),
    EMU_STEPS("gated_delta_rule_bf16_state.cu", gated_delta_rule_wyn_bf16_state),
    EMU_STEPS("gated_delta_rule_wy.cu", gated_delta_rule_wy2),
    EMU_STEPS("gated_delta_rule_wy3.cu", gated_delta_rule_wy3),
    EMU_STEPS("gated_delta_rule_wy4.cu", gated_delta_rule_wy4),
    EMU_STEPS("gated_delta_rule_verify_split.cu", gated_delta_rule_wy4_split),
    EMU_STEPS("gated_delta_rule_wyn.cu", gated_delta_rule_wyn),
    EMU_STEPS("gated_delta_rule_verify_split.cu", gated_delta_rule_wyn_split),
    EMU_STEPS("gated_delta_rule_wy4_woa.cu", gated_delta_rule_wy4_woa),
    EMU_STEPS("gated_delta_rule_wy4_woa.cu", gated_delta_rule_wy4_fold),
    EMU_STEP("gated_delta_rule_wy4_woa.cu", gated_delta_rule_wy4_flag_clear),
    EMU_STEP("gated_delta_rule_wy4_round.cu", gated_delta_rule_wy4_round),
#ifdef ROUND_STAYS
    EMU_STEP("gated_delta_rule_wy4_round.cu", gated_delta_rule_wy4_round_stay),
#endif
    EMU_STEP("gated_delta_rule_wy4_woa.cu", gated_delta_rule_wy4_woa_seq),
    EMU_STEP("gated_delta_rule_wy4_woa.cu", gated_delta_rule_wy4_fold_seq),
    EMU_STEP("gated_delta_rule_wy4_woa.cu", gated_delta_rule_wy4_flag_clear_seq),
};
EMU_MODULE(step);
