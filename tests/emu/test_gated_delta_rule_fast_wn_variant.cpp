/* test_gated_delta_rule_fast_wn_variant.cpp - test_gated_delta_rule_fast_wn.cpp with states [V][K], tiled heads and logarithmic gates. */
#define GDN_STATE_VK
#define GDN_HEADS_TILED
#define GDN_GATE_LOG
#include "test_gated_delta_rule_fast_wn.cpp"
