package gatewaytest

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setIdentity changes the identity of this thread alone, where package syscall changes all.
func setIdentity(who Identity) error {
	var groups unsafe.Pointer
	if len(who.Groups) > 0 {
		groups = unsafe.Pointer(&who.Groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(who.Groups)), uintptr(groups), 0); errno != 0 {
		return errno
	}
	for _, set := range []struct{ call, id uintptr }{{unix.SYS_SETRESGID, uintptr(who.GID)},
		{unix.SYS_SETRESUID, uintptr(who.UID)}} {
		if _, _, errno := unix.RawSyscall(set.call, set.id, set.id, set.id); errno != 0 {
			return errno
		}
	}
	return nil
}

// futimens changes the times of an open file, without /proc as package unix has it; nil is now.
func futimens(fd int, times *[2]unix.Timespec) error {
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(times)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// linkDescriptor names what a descriptor stands for.
func linkDescriptor(fd int, path string) error {
	err := unix.Linkat(fd, "", unix.AT_FDCWD, path, unix.AT_EMPTY_PATH)
	if err == unix.ENOENT { // before Linux 6.10 only for CAP_DAC_READ_SEARCH
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/thread-self/fd/%d", fd), unix.AT_FDCWD, path,
			unix.AT_SYMLINK_FOLLOW)
	}
	return err
}
