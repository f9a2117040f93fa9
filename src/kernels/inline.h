#pragma once

// For the small functions of vector code: they must vanish into their callers at every optimisation level,
// because a copy kept by the linker could hold instructions that another caller's processor lacks.
#define KVASIR_INLINE [[gnu::always_inline]] inline
