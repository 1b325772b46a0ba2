package confine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/mounts"
)

// Descriptors of the process that Start starts.
const (
	directoryFile = 3 // a mount that is nowhere yet
	linkFile      = 3 // in its Place, once it is mounted: between the server and what tends it
	listenerFile  = 4 // on which QEMU will call
	reportFile    = 5 // a pipe, to Start
	wordsFile     = 6 // takes what the server said last
)

// Place is where a server finds the directory, in a mount namespace of its own.
const Place = "/tmp/directory"

// launch starts the server, and has this process become tend, which has no capability: the kernel gives none to what
// starts without ambient ones.
func launch(o Order, g Gateway, tend []string) error {
	for _, fd := range []int{directoryFile, listenerFile, reportFile, wordsFile} {
		unix.CloseOnExec(fd) // the server has what it is given
	}
	if g.Launch == nil {
		return fmt.Errorf("no program of ours serves by %q", string(o.Gateway))
	}
	if err := attach(); err != nil {
		return err
	}
	runtime.LockOSThread() // filter, ambient capabilities and the process itself are of this thread
	if err := confine(o.Caller); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	words, say, err := os.Pipe()
	if err != nil {
		return err
	}
	listener := os.NewFile(listenerFile, "listener")
	link, err := g.Launch(Inside{o, listener, null, say})
	if errors.Is(err, io.EOF) { // it has ended
		say.Close()
		return fmt.Errorf("%s ended at once: %s", o.Program, lastLine(bufio.NewReader(words)))
	}
	if err != nil {
		return err
	}
	if err := DropAmbient(); err != nil {
		return err
	}
	if err := keep(words, link); err != nil {
		return err
	}
	runtime.KeepAlive(listener) // its descriptor is tend's
	return syscall.Exec("/proc/self/exe", tend, Environment)
}

// keep leaves open what tend works with.
func keep(words, link *os.File) error {
	if err := unix.Dup3(int(words.Fd()), 0, 0); err != nil {
		return err
	}
	kept := []uintptr{reportFile, wordsFile}
	if link != nil {
		if err := unix.Dup3(int(link.Fd()), linkFile, 0); err != nil {
			return err
		}
		kept = append(kept, listenerFile)
	}
	for _, fd := range kept {
		if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	return nil
}

// DropAmbient has what this thread starts from now on have no capability.
func DropAmbient() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// GiveDirectory makes the directory the root of all that this process has started, and the end of their mounts: nothing
// else of the host has a name there any more, and what a program needs has to be open or loaded. This thread keeps a
// copy of the mounts of before, for what it executes.
func GiveDirectory() error {
	const self = "/proc/thread-self/ns/mnt"
	theirs, err := unix.Open(self, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(theirs)
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	ours, err := unix.Open(self, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(ours)
	if err := unix.Setns(theirs, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the mount namespace: %w", err)
	}
	if err := changeRoot(); err != nil {
		return err
	}
	if err := unix.Setns(ours, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("leave the mount namespace: %w", err)
	}
	return nil
}

// changeRoot has the kernel change the root of all processes of this mount namespace.
func changeRoot() error {
	if err := unix.Chdir(Place); err != nil {
		return fmt.Errorf("enter the directory: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("make the directory the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil { // the old root, which lies over it
		return fmt.Errorf("leave the host's files: %w", err)
	}
	return nil
}

// Environment is that of all programs here.
var Environment = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}

// tend reports that the server runs, and returns how it ended, with the last that it said.
func tend(g Gateway) error {
	for _, fd := range []int{linkFile, listenerFile, reportFile, wordsFile} {
		unix.CloseOnExec(fd)
	}
	report := os.NewFile(reportFile, "report")
	if _, err := report.WriteString(started); err != nil {
		return err
	}
	report.Close()
	failed := make(chan error, 1)
	if g.Tend != nil {
		go func() { failed <- g.Tend(os.NewFile(listenerFile, "listener"), os.NewFile(linkFile, "link")) }()
	}
	last := lastLine(bufio.NewReader(os.Stdin))
	var end unix.WaitStatus
	if _, err := unix.Wait4(-1, &end, 0, nil); err != nil {
		return err
	}
	how := fmt.Sprintf("it ended with status %d", end.ExitStatus())
	if end.Signaled() {
		how = "it was ended by the signal: " + end.Signal().String()
	}
	if last != "" {
		how += ", and said: " + last
	}
	select {
	case err := <-failed:
		if err != nil {
			how += "; before that: " + err.Error()
		}
	default:
	}
	_, err := os.NewFile(wordsFile, "words").WriteString(how)
	return err
}

// maxWords bounds what is kept of a line of the server, in bytes.
const maxWords = 500

// lastLine reads to the end and returns the last line.
func lastLine(r *bufio.Reader) string {
	last := ""
	for {
		line, err := r.ReadSlice('\n')
		if text := strings.TrimSpace(string(line[:min(len(line), maxWords)])); text != "" {
			last = text
		}
		if err != nil && err != bufio.ErrBufferFull {
			return last
		}
	}
}

// attach puts the directory at Place.
func attach() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	if err := unix.Mount("tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=64k"); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	if err := os.Mkdir(Place, 0o755); err != nil {
		return err
	}
	if err := unix.MoveMount(directoryFile, "", unix.AT_FDCWD, Place, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount the directory: %w", err)
	}
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer table.Close()
	return nothingBelow(table)
}

// nothingBelow refuses a directory with mounts below it: some may be of the kernel's own file systems, which no VM is
// shown, and without them there would be what the host has covered.
func nothingBelow(mountinfo io.Reader) error {
	all, err := mounts.All(mountinfo)
	if err != nil {
		return err
	}
	own := 0
	for _, m := range all {
		if m.Point == Place {
			if own++; own > 1 {
				return errors.New("a file system is mounted over it")
			}
		}
		if mounts.Below(m.Point, Place) {
			return fmt.Errorf("a file system is mounted below it, at %s", strings.TrimPrefix(m.Point, Place+"/"))
		}
	}
	return nil
}
