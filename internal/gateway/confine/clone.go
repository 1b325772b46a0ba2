package confine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Directory is what a caller holds open, as a mount that is nowhere yet: what it is called, or becomes, does not count.
type Directory struct {
	*os.File
	ID DirectoryID
}

// DirectoryID tells one directory of a host from all others.
type DirectoryID struct {
	Major, Minor uint32
	Ino          uint64
}

// answerLimit is for the kernel. A network file system whose server has gone may hold it up, and the thread with it.
const answerLimit = 20 * time.Second

// Clone takes the directory that is open in a process. That it is open there is the proof that its user may come to it;
// the rights to what is inside are the server's own. It must be checked afterwards that the process is still the same.
// Mounts below it are cloned as well, and Start refuses them. Error: CodeNoGateway.
func Clone(ctx context.Context, pid, fd int, uid uint32, readOnly bool) (Directory, error) {
	return within(ctx, func() (Directory, error) { return clone(pid, fd, uid, readOnly) },
		func(d Directory) { d.Close() })
}

// Identify returns which directory is open in a process. It must be checked afterwards that the process is still the
// same.
func Identify(ctx context.Context, pid, fd int, uid uint32) (DirectoryID, error) {
	return within(ctx, func() (DirectoryID, error) {
		open, id, err := opened(pid, fd, uid)
		if err != nil {
			return id, err
		}
		return id, unix.Close(open)
	}, func(DirectoryID) {})
}

var errSilent = Refused(HintFUSE, "the file system of the directory does not answer")

// within calls do on a thread of its own, and leaves it there when it does not come back in time: late takes what it
// returns then.
func within[T any](ctx context.Context, do func() (T, error), late func(T)) (value T, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerLimit, errSilent)
	defer cancel()
	type result struct {
		value T
		err   error
	}
	done := make(chan result)
	go func() {
		var r result
		r.err = onThread(func() (err error) {
			r.value, err = do()
			return err
		})
		select {
		case done <- r:
		case <-ctx.Done():
			if r.err == nil {
				late(r.value)
			}
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
}

// owned refuses a process that has become somebody else by executing a set-user-ID program, under the same number: what
// that has open is its own, and the kernel gives its files in /proc to root.
func owned(pid int, uid uint32) error {
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/fd", pid), &st); err != nil || st.Uid != uid {
		return Refused(HintFUSE, "the process of the caller is not the caller's any more")
	}
	return nil
}

// opened opens once more what is open in a user's process. It asks no server.
func opened(pid, fd int, uid uint32) (open int, id DirectoryID, err error) {
	if err := owned(pid, uid); err != nil {
		return -1, id, err
	}
	open, err = unix.Open(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, id, Refused(HintFUSE, "the caller's descriptor %d: %v", fd, err)
	}
	if err := owned(pid, uid); err != nil {
		unix.Close(open)
		return -1, id, err
	}
	var st unix.Statx_t
	if err := unix.Statx(open, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &st); err != nil {
		unix.Close(open)
		return -1, id, Refused(HintFUSE, "the caller's descriptor %d: %v", fd, err)
	}
	return open, DirectoryID{st.Dev_major, st.Dev_minor, st.Ino}, nil
}

func clone(pid, fd int, uid uint32, readOnly bool) (Directory, error) {
	open, id, err := opened(pid, fd, uid)
	if err != nil {
		return Directory{}, err
	}
	defer unix.Close(open)
	if err := enterMounts(fmt.Sprintf("/proc/%d/ns/mnt", pid)); err != nil {
		return Directory{}, err
	}
	const whole = unix.AT_EMPTY_PATH | unix.AT_RECURSIVE
	tree, err := unix.OpenTree(open, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|whole)
	if err != nil {
		return Directory{}, notCloned(err)
	}
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC |
		unix.MOUNT_ATTR_NOSYMFOLLOW, Propagation: unix.MS_PRIVATE}
	if readOnly {
		attributes.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(tree, "", whole, &attributes); err != nil {
		unix.Close(tree)
		return Directory{}, notCloned(err)
	}
	return Directory{os.NewFile(uintptr(tree), "directory"), id}, nil
}

func notCloned(err error) error {
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
		return Refused(HintFUSE, "the kernel gives no mount of this directory (Linux 5.14 does, of one that is mounted "+
			"where the caller is): %v", err)
	}
	return fmt.Errorf("a mount of the directory: %w", err)
}
