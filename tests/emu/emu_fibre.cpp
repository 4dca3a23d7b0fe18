/* emu_fibre.cpp - switching between the fibres of a block. x86-64 by hand (about 20 ns), elsewhere ucontext (about 0.5 us: it
 * saves the signal mask). Sanitizers are told of every switch. */
#include "emu_internal.hpp"
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__) && !defined(GDN_EMU_UCONTEXT)
extern "C" void emu_switch(void **save_sp, void *to_sp);
__asm__(".text\n"
        ".globl emu_switch\n"
        ".type emu_switch,@function\n"
        "emu_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp,(%rdi)\n"
        "  movq %rsi,%rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size emu_switch,.-emu_switch\n");

namespace emu {
void context_make(context &c, char *stack, size_t bytes, void (*entry)()) {
    /* From the top: one empty word (entry starts 8 below a multiple of 16, as after a call), the return address, six registers. */
    void **top = reinterpret_cast<void **>(reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t(15));
    void **sp = top - 2 - 6;
    for (int i = 0; i < 6; i++) sp[i] = nullptr;
    sp[6] = reinterpret_cast<void *>(entry);
    sp[7] = nullptr;
    c.sp = sp;
#ifdef EMU_ASAN
    c.stack = stack;
    c.size = bytes;
#endif
}
static void jump(context &from, context &to) {
    emu_switch(&from.sp, to.sp);
}
} // namespace emu
#else
#include <ucontext.h>
namespace emu {
static ucontext_t *of(context &c) {
    if (!c.sp) c.sp = calloc(1, sizeof(ucontext_t));
    if (!c.sp) abort();
    return static_cast<ucontext_t *>(c.sp);
}
void context_make(context &c, char *stack, size_t bytes, void (*entry)()) {
    ucontext_t *u = of(c);
    getcontext(u);
    u->uc_stack.ss_sp = stack;
    u->uc_stack.ss_size = bytes;
    u->uc_link = nullptr;
    makecontext(u, entry, 0);
#ifdef EMU_ASAN
    c.stack = stack;
    c.size = bytes;
#endif
}
static void jump(context &from, context &to) {
    swapcontext(of(from), of(to));
}
} // namespace emu
#endif

namespace emu {
void context_switch(context &from, context &to, bool from_ends) {
    (void)from_ends;
#ifdef EMU_TSAN
    __tsan_switch_to_fiber(to.tsan, 1); /* 1: a switch alone orders nothing */
#endif
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(from_ends ? nullptr : &from.fake, to.stack, to.size);
#endif
    jump(from, to);
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(from.fake, nullptr, nullptr);
#endif
}
void context_entered(context &from) {
    (void)from;
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &from.stack, &from.size);
#endif
}
} // namespace emu
