package confine

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The filter of system calls is what keeps a server its caller. virtiofsd takes the identity that a guest names, and
// starts with giving groups up: all such calls succeed and do nothing, so that it keeps user, group and groups. The
// filter comes before a server's own, and of two the stricter counts.

const (
	setIDBits  = unix.S_ISUID | unix.S_ISGID
	anyone     = ^uint32(0) // chown: as it is
	openTmpfil = 0o20000000 // __O_TMPFILE: O_TMPFILE without O_DIRECTORY

	retAllow = unix.SECCOMP_RET_ALLOW
	retNoop  = unix.SECCOMP_RET_ERRNO // errno 0: the call returns 0
	retEPERM = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	retNoSys = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)

	auditArch = unix.AUDIT_ARCH_X86_64
	x32Bit    = 0x40000000
)

// Offsets in struct seccomp_data of a little-endian machine.
const (
	dataCall = 0
	dataArch = 4
	dataArgs = 16
)

// identityCalls change who a process is.
var identityCalls = []uint32{unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETREUID, unix.SYS_SETREGID, unix.SYS_SETRESUID,
	unix.SYS_SETRESGID, unix.SYS_SETFSUID, unix.SYS_SETFSGID, unix.SYS_SETGROUPS, unix.SYS_GETGROUPS}

// unseenCalls reach what the filter checks by pointers, which it cannot follow, or are of no use to a server.
var unseenCalls = []uint32{unix.SYS_OPENAT2, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER,
	unix.SYS_IO_URING_REGISTER, unix.SYS_BPF, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_USERFAULTFD, unix.SYS_PERF_EVENT_OPEN}

// A mode is this argument of calls that make files or change them.
var (
	modeCalls = map[uint32]int{unix.SYS_CHMOD: 1, unix.SYS_FCHMOD: 1, unix.SYS_FCHMODAT: 2, unix.SYS_FCHMODAT2: 2,
		unix.SYS_CREAT: 1, unix.SYS_MKDIR: 1, unix.SYS_MKDIRAT: 2}
	nodeCalls = map[uint32]int{unix.SYS_MKNOD: 1, unix.SYS_MKNODAT: 2}
	openCalls = map[uint32]int{unix.SYS_OPEN: 2, unix.SYS_OPENAT: 3} // behind the flags
)

// The owner is this argument, and the group the next one.
var ownerCalls = map[uint32]int{unix.SYS_CHOWN: 1, unix.SYS_LCHOWN: 1, unix.SYS_FCHOWN: 1, unix.SYS_FCHOWNAT: 2}

func statement(code int, k uint32) unix.SockFilter { return unix.SockFilter{Code: uint16(code), K: k} }

func load(offset int) unix.SockFilter {
	return statement(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, uint32(offset))
}

// argument loads the lower half of one: the kernel looks at no more of modes, flags and IDs.
func argument(n int) unix.SockFilter { return load(dataArgs + 8*n) }

func end(verdict uint32) unix.SockFilter { return statement(unix.BPF_RET|unix.BPF_K, verdict) }

// when ends with the verdict where the loaded value passes the test, and goes on where it does not.
func when(test int, k, verdict uint32) []unix.SockFilter {
	return []unix.SockFilter{{Code: uint16(unix.BPF_JMP | unix.BPF_K | test), Jf: 1, K: k}, end(verdict)}
}

// filter returns the program for a caller.
func filter(c Caller) []unix.SockFilter {
	p := []unix.SockFilter{load(dataArch), {Code: unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ, Jt: 1, K: auditArch},
		end(unix.SECCOMP_RET_KILL_PROCESS), load(dataCall)}
	p = append(p, when(unix.BPF_JGE, x32Bit, unix.SECCOMP_RET_KILL_PROCESS)...)
	for _, call := range identityCalls {
		p = append(p, when(unix.BPF_JEQ, call, retNoop)...)
	}
	for _, call := range unseenCalls {
		p = append(p, when(unix.BPF_JEQ, call, retNoSys)...)
	}
	on := func(calls map[uint32]int, rule func(arg int) []unix.SockFilter) {
		for call, arg := range calls {
			body := append(rule(arg), end(retAllow))
			p = append(p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ, Jt: 1, K: call},
				statement(unix.BPF_JMP|unix.BPF_JA, uint32(len(body))))
			p = append(p, body...)
		}
	}
	on(modeCalls, func(arg int) []unix.SockFilter {
		return append([]unix.SockFilter{argument(arg)}, when(unix.BPF_JSET, setIDBits, retEPERM)...)
	})
	on(nodeCalls, nodeRule)
	on(openCalls, openRule)
	on(ownerCalls, func(arg int) []unix.SockFilter { return ownerRule(c, arg) })
	return append(p, end(retAllow))
}

// nodeRule refuses device nodes, which the kernel does too.
func nodeRule(arg int) []unix.SockFilter {
	p := append([]unix.SockFilter{argument(arg)}, when(unix.BPF_JSET, setIDBits, retEPERM)...)
	p = append(p, statement(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, unix.S_IFMT))
	p = append(p, when(unix.BPF_JEQ, unix.S_IFCHR, retEPERM)...)
	return append(p, when(unix.BPF_JEQ, unix.S_IFBLK, retEPERM)...)
}

// openRule looks at the mode where a file is made: else the argument is whatever the register held.
func openRule(arg int) []unix.SockFilter {
	p := []unix.SockFilter{argument(arg), {Code: unix.BPF_JMP | unix.BPF_K | unix.BPF_JSET, Jt: 1, K: setIDBits},
		end(retAllow), argument(arg - 1)}
	return append(p, when(unix.BPF_JSET, unix.O_CREAT|openTmpfil, retEPERM)...)
}

// ownerRule has the answer for IDs that the user namespace does not know be what an ordinary user gets.
func ownerRule(c Caller, arg int) []unix.SockFilter {
	p := []unix.SockFilter{argument(arg),
		{Code: unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ, Jt: 2, K: anyone},
		{Code: unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ, Jt: 1, K: c.UID},
		end(retEPERM), argument(arg + 1)}
	for _, gid := range append([]uint32{anyone}, c.groups()...) {
		p = append(p, when(unix.BPF_JEQ, gid, retAllow)...)
	}
	return append(p, end(retEPERM))
}

// groups are all that the caller is in, each once, in order.
func (c Caller) groups() []uint32 {
	all := append([]uint32{c.GID}, c.Groups...)
	slices.Sort(all)
	return slices.Compact(all)
}

// confine puts all threads of this process, and what they start, behind the filter.
func confine(c Caller) error {
	p := filter(c)
	program := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	switch {
	case errno != 0:
		return fmt.Errorf("filter of system calls: %w", errno)
	case thread != 0:
		return fmt.Errorf("filter of system calls: thread %d does not take it", thread)
	}
	return nil
}
