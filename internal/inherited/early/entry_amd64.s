#include "textflag.h"

// entry is where the kernel starts the program: the linker gets it by -E. It keeps the ignored and blocked signals and
// the closed standard files, for the runtime changes all of them, and goes on to the runtime. A program that may become
// a job's wrapper blocks TSTP first: the runtime gives each thread the signals that are blocked when it starts.
TEXT ·entry(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ SP, R14 // the number of arguments, then their addresses
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

	// The name is a link's that has "exec-" in it, or one of the arguments before "--" is exec, oci or wrapper.
	MOVQ 0(R14), R12 // arguments that are left
	LEAQ 8(R14), R13
	TESTQ R12, R12
	JLE start
	MOVQ 0(R13), SI
name:
	CMPB 0(SI), $0
	JEQ argument
	CMPL 0(SI), $0x63657865 // "exec"
	JNE letter
	CMPB 4(SI), $0x2d // "-"
	JEQ hold
letter:
	INCQ SI
	JMP name
argument:
	ADDQ $8, R13
	DECQ R12
	JLE start
	MOVQ 0(R13), SI
	CMPL 0(SI), $0x0069636f // "oci" and its end
	JEQ hold
	MOVQ $0x0072657070617277, AX // "wrapper" and its end; what is read behind a shorter one is on the stack, too
	CMPQ 0(SI), AX
	JEQ hold
	CMPW 0(SI), $0x2d2d // "--"
	JNE word
	CMPB 2(SI), $0
	JEQ start
word:
	CMPL 0(SI), $0x63657865
	JNE argument
	CMPB 4(SI), $0
	JNE argument
hold:
	MOVQ $0x80000, AX // SIGTSTP alone
	MOVQ AX, 0(SP)
	MOVQ $14, AX // SYS_rt_sigprocmask
	XORQ DI, DI // SIG_BLOCK
	MOVQ SP, SI
	XORQ DX, DX
	MOVQ $8, R10
	SYSCALL
start:
	ADDQ $32, SP
	JMP _rt0_amd64_linux(SB)
