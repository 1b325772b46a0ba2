package inside

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
)

// sshfsMounts are the directories that come by sftp. A port has one reader, so each is mounted once in a VM; the jobs
// in it see it through mounts of their own.
type sshfsMounts struct {
	mu sync.Mutex
	at map[string]string // where a port's directory is
}

// any reports whether there are some, whose processes must outlive all of a job's.
func (s *sshfsMounts) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at) > 0
}

// place returns where a port's directory is mounted; "": nowhere.
func (s *sshfsMounts) place(port string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[port]
}

// mountPorts mounts what a job's binds have by sftp and no job before it had. The caller is on the VM's own mounts,
// which jobs copy.
func (g *Guest) mountPorts(binds []guest.Bind) error {
	s := &g.sshfs
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range binds {
		if b.Port == "" || s.at[b.Port] != "" {
			continue
		}
		at := filepath.Join("/run/grange/sftp", b.Port)
		if err := g.mountPort(b.Port, at); err != nil {
			return fmt.Errorf("bind %s: sftp: %w", b.Target, err)
		}
		if s.at == nil {
			s.at = map[string]string{}
		}
		s.at[b.Port] = at
	}
	return nil
}

func (g *Guest) mountPort(name, at string) error {
	if err := loadModules("fuse"); err != nil {
		return err
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		unix.Mknod("/dev/fuse", unix.S_IFCHR|0o600, int(unix.Mkdev(10, 229)))
		os.Chmod("/dev/fuse", deviceModes["fuse"])
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	p, err := openPort(name)
	if err != nil {
		return err
	}
	link, err := startSSHFS(g.reaper, at)
	if err != nil {
		return errors.Join(err, p.Close())
	}
	// Not the port itself: who writes to it and may block spins in the kernel until the host has taken all.
	go carry(p, link)
	go carry(link, p)
	return nil
}

// carry copies until one end has gone, and then closes both: every call of a program ends.
func carry(to, from io.ReadWriteCloser) {
	_, err := io.Copy(to, from)
	logf("sftp: %v", cmp.Or(err, io.EOF))
	to.Close()
	from.Close()
}

// sshfsLimit is for sshfs to be loaded, and for the host to answer it.
const sshfsLimit = time.Minute

// sshfsPaths are where distributions have it.
var sshfsPaths = []string{"/usr/bin/sshfs", "/usr/local/bin/sshfs", "/bin/sshfs"}

var errNoSSHFS = errors.New("the image has no sshfs: install it there (the micro image: " +
	"`grange image build micro --package sshfs`), or leave gateway=sftp out")

// startSSHFS mounts what the server at the other end of link has.
func startSSHFS(r *reaper, at string) (link *os.File, err error) {
	path, err := findSSHFS()
	if err != nil {
		return nil, err
	}
	help, _, err := runSSHFS(r, path, []string{"--help"}, nil)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(help, 64<<10))
	help.Close()
	if err != nil {
		return nil, err
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(ends[0], true); err != nil { // a close ends a read
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "link"), os.NewFile(uintptr(ends[1]), "sshfs")
	said, ended, err := runSSHFS(r, path, []string{"grange:/", at, "-f", "-o", sshfsOptions(string(text))}, theirs)
	theirs.Close()
	if err == nil {
		err = awaitMount(at, said, ended)
	}
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	return ours, nil
}

func findSSHFS() (string, error) {
	for _, path := range sshfsPaths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", errNoSSHFS
}

// sshfsOptions are those of a release of sshfs, whose help is given. The host refuses what leads out of the directory,
// so links may say what they do. What sshfs itself remembers of directories, for 20 seconds, is off: it lists what is
// closed, and not what the host has changed.
func sshfsOptions(help string) string {
	options := "allow_other,idmap=none,dir_cache=no,sshfs_sync"
	if strings.Contains(help, "-o passive") {
		options += ",passive"
	} else {
		options += ",slave" // the older word
	}
	if strings.Contains(help, "-o no_contain_symlinks") {
		options += ",no_contain_symlinks"
	}
	return options
}

// runSSHFS starts sshfs, and returns what it says and where its end will be told. It speaks SFTP by link, if there is
// one, and keeps its memory when others have none.
func runSSHFS(r *reaper, path string, args []string, link *os.File) (said *os.File, ended <-chan ending, err error) {
	said, say, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer say.Close()
	in := say
	if link != nil {
		in = link
	}
	out := in
	pid, ended, err := r.start(func() (int, error) {
		return syscall.ForkExec(path, append([]string{path}, args...), &syscall.ProcAttr{Dir: "/",
			Env:   []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"},
			Files: []uintptr{in.Fd(), out.Fd(), say.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}})
	})
	if err != nil {
		said.Close()
		return nil, nil, fmt.Errorf("start %s: %w", path, err)
	}
	os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("-1000"), 0)
	return said, ended, nil
}

// awaitMount waits until sshfs has mounted, or has ended. What it says later is logged.
func awaitMount(at string, said *os.File, ended <-chan ending) error {
	lines := make(chan string, 1)
	go func() {
		last := ""
		for s := bufio.NewScanner(said); s.Scan(); logf("sshfs: %s", last) {
			last = cmp.Or(strings.TrimSpace(s.Text()), last)
		}
		said.Close()
		lines <- last
	}()
	for deadline := time.Now().Add(sshfsLimit); time.Now().Before(deadline); {
		select {
		case <-ended:
			return fmt.Errorf("sshfs ended: %s", cmp.Or(<-lines, "it has not said why"))
		case <-time.After(time.Millisecond):
		}
		if isMountPoint(at) {
			return nil
		}
	}
	return fmt.Errorf("sshfs has not mounted within %v", sshfsLimit)
}

// isMountPoint asks the kernel alone, as what is mounted there may not answer.
func isMountPoint(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, 0, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// showPort has a job see what is mounted in its VM.
func (g *Guest) showPort(w guest.Bind) error {
	at := g.sshfs.place(w.Port)
	if at == "" {
		return errors.New("sftp: the VM was made without it")
	}
	if err := unix.Mount(at, w.Target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if !w.ReadOnly {
		return nil
	}
	const flags = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("", w.Target, "", flags, ""); err != nil {
		return fmt.Errorf("mount read-only: %w", err)
	}
	return nil
}
