#include "textflag.h"

// func getrlimit(resource int64, to *Rlimit) (errno int64)
TEXT ·getrlimit(SB), NOSPLIT, $0-24
	MOVQ $97, AX // SYS_getrlimit
	MOVQ resource+0(FP), DI
	MOVQ to+8(FP), SI
	SYSCALL
	MOVQ AX, errno+16(FP)
	RET
