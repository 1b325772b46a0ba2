#include "textflag.h"

// entry is where the kernel starts the program: the linker gets it by -E. It keeps the ignored and blocked signals and
// the closed standard files, for the runtime changes all of them, and goes on to the runtime.
TEXT ·entry(SB), NOSPLIT|NOFRAME, $0-0
	SUBQ $32, SP // a struct sigaction of the kernel
	MOVQ $1, R12 // the signal
	XORQ R13, R13 // those that are ignored
signal:
	MOVQ $13, AX // SYS_rt_sigaction
	MOVQ R12, DI
	XORQ SI, SI
	MOVQ SP, DX
	MOVQ $8, R10 // size of a set of signals
	SYSCALL
	TESTQ AX, AX
	JNE next
	CMPQ 0(SP), $1 // SIG_IGN
	JNE next
	LEAQ -1(R12), CX
	BTSQ CX, R13
next:
	INCQ R12
	CMPQ R12, $64
	JLE signal
	MOVQ $14, AX // SYS_rt_sigprocmask
	XORQ DI, DI
	XORQ SI, SI
	LEAQ ·Blocked(SB), DX
	MOVQ $8, R10
	SYSCALL
	MOVQ R13, ·Ignored(SB)
	MOVB $1, ·Signals(SB)
	XORQ R12, R12 // the file
	XORQ R13, R13 // those that are closed
file:
	MOVQ $72, AX // SYS_fcntl
	MOVQ R12, DI
	MOVQ $1, SI // F_GETFD
	SYSCALL
	TESTQ AX, AX
	JGE open
	BTSQ R12, R13
open:
	INCQ R12
	CMPQ R12, $3
	JLT file
	MOVQ R13, ·Closed(SB)
	ADDQ $32, SP
	JMP _rt0_amd64_linux(SB)
