package subid

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// mostNested is more than the 32 levels of user namespaces that the kernel has.
const mostNested = 64

// ErrOutside is the error for a process whose user namespace is not one of this process's, nor below it.
var ErrOutside = errors.New("its user namespace is not below that of the agent")

type identity struct{ dev, ino uint64 }

// own returns the user namespace of this process. It fails with os.ErrNotExist where the kernel has none.
var own = sync.OnceValues(func() (identity, error) {
	var st unix.Stat_t
	err := unix.Stat("/proc/self/ns/user", &st)
	return identity{st.Dev, st.Ino}, err
})

// NamespaceOwner returns the account that made the user namespace of a process, as the user namespace of this process
// has its number. Of nested namespaces it is the owner of the outermost; one that root made is passed over, as a
// container of root has users of its own. 0: the process is in the user namespace of this process, or in one of root
// alone. process is its directory below /proc.
func NamespaceOwner(process *os.File) (uint32, error) {
	mine, err := own()
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	const name = "ns/user"
	var st unix.Stat_t
	if err := unix.Fstatat(int(process.Fd()), name, &st, 0); err != nil {
		return 0, err
	}
	if (identity{st.Dev, st.Ino}) == mine {
		return 0, nil
	}
	fd, err := unix.Openat(int(process.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	return outermost(fd, mine)
}

// outermost goes up from a user namespace, which it closes, to that of this process.
func outermost(fd int, mine identity) (owner uint32, err error) {
	defer func() { unix.Close(fd) }()
	for range mostNested {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return 0, err
		}
		if (identity{st.Dev, st.Ino}) == mine {
			return owner, nil
		}
		uid, err := ownerOf(fd)
		if err != nil {
			return 0, err
		}
		if uid != 0 {
			owner = uid
		}
		parent, err := unix.IoctlRetInt(fd, unix.NS_GET_PARENT)
		if errors.Is(err, unix.EPERM) {
			return 0, ErrOutside
		}
		if err != nil {
			return 0, fmt.Errorf("parent of a user namespace: %w", err)
		}
		unix.Close(fd)
		fd = parent
	}
	return 0, ErrOutside
}

func ownerOf(fd int) (uint32, error) {
	uid, err := unix.IoctlGetUint32(fd, unix.NS_GET_OWNER_UID)
	if err != nil {
		return 0, fmt.Errorf("owner of a user namespace: %w", err)
	}
	return uid, nil
}
