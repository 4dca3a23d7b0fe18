"""The structures and numbers of libgdn's headers that the benches use; layout_test.py holds them against the headers."""
import ctypes as C

U32, U64 = C.c_uint32, C.c_uint64
OP_PREFILL, OP_DECODE, OP_VERIFY, OP_WOA, OP_FOLD = 6, 7, 8, 9, 10
BF16, F32, LINEAR, POOL, OFFSETS_I32, BF16_STATE = 1, 2, 1, 1, 1, 16
NUMBERS = {"GDN_OP_PREFILL": OP_PREFILL, "GDN_OP_DECODE": OP_DECODE, "GDN_OP_VERIFY": OP_VERIFY, "GDN_OP_VERIFY_WOA": OP_WOA,
           "GDN_OP_FOLD": OP_FOLD, "GDN_BF16": BF16, "GDN_F32": F32, "GDN_GATE_LINEAR": LINEAR, "GDN_STATE_POOL": POOL,
           "GDN_OFFSETS_I32": OFFSETS_I32, "GDN_BF16_STATE": BF16_STATE, "GDN_PREFILL_N_PTR": 14, "GDN_DECODE_N_PTR": 12,
           "GDN_VERIFY_N_PTR": 16, "GDN_VERIFY_WOA_N_PTR": 14, "GDN_FOLD_N_PTR": 9}


class Text(C.Structure):
    _fields_ = [("buf", C.c_char_p), ("cap", U64), ("len", U64)]


class Setting(C.Structure):
    _fields_ = [("key", C.c_char_p), ("value", C.c_char_p)]


class Options(C.Structure):
    _fields_ = [("struct_size", U32), ("ordinal", C.c_int32), ("target", C.c_char_p), ("plugin_path", C.c_char_p), ("conf", C.c_char_p),
                ("log", C.c_void_p), ("log_user", C.c_void_p), ("settings", C.POINTER(Setting)), ("n_settings", U32), ("log_level", U32),
                ("flags", U32), ("pad_", U32)]


class RuleShape(C.Structure):
    _fields_ = ([(n, U32) for n in ("struct_size", "op", "flags", "act_type", "nk", "nv", "k_dim", "v_dim", "qk_stride", "v_stride",
                                    "gb_stride", "gate_form", "head_map", "state_layout", "state_addr", "state_type", "offsets", "max_tokens",
                                    "max_batch", "max_rows", "ckpt_every", "hi_capacity", "slab_entries", "stash_seqs", "layers")] +
                [("scale", C.c_float), ("state_stride", U64), ("num_slots", U64), ("stash_stride", U64), ("max_workspace", U64)])


class Route(C.Structure):
    _fields_ = [("struct_size", U32), ("chosen", U32), ("entry", C.c_char_p), ("guard", C.c_char_p), ("lever", C.c_char_p),
                ("lever_where", C.c_char_p), ("lever_source", U32), ("smem_bytes", U32), ("grid", U32 * 3), ("block", U32 * 3),
                ("workspace_bytes", U64)]


class Args(C.Structure):
    _fields_ = [("struct_size", U32), ("n_ptr", U32), ("n_u32", U32), ("flags", U32), ("stream", C.c_void_p), ("ptr", C.POINTER(U64)),
                ("u32", C.POINTER(U32))]


STRUCTURES = {"gdn_text": Text, "gdn_setting": Setting, "gdn_options": Options, "gdn_rule_shape": RuleShape, "gdn_route": Route,
              "gdn_launch_args": Args}
