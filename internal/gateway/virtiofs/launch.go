package virtiofs

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
	listenerFile  = 4 // on which virtiofsd waits for QEMU
	reportFile    = 5 // a pipe, to Start
	wordsFile     = 6 // takes what virtiofsd said last
)

// place is where virtiofsd finds the directory, in a mount namespace of its own.
const place = "/tmp/directory"

// launch starts virtiofsd, and has this process become Tend, which has no capability: the kernel gives none to what
// starts without ambient ones.
func launch(o order, tend []string) error {
	for _, fd := range []int{directoryFile, listenerFile, reportFile, wordsFile} {
		unix.CloseOnExec(fd) // virtiofsd has what it is given
	}
	if err := attach(); err != nil {
		return err
	}
	runtime.LockOSThread() // filter, ambient capabilities and the process itself are of this thread
	if err := confine(o.caller); err != nil {
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
	const first = 3 // behind the standard files
	_, err = os.StartProcess(o.Program, append([]string{o.Program}, arguments(first)...), &os.ProcAttr{Dir: "/",
		Env: environment, Files: []*os.File{null, null, say, os.NewFile(listenerFile, "listener")}})
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := unix.Dup3(int(words.Fd()), 0, 0); err != nil {
		return err
	}
	for _, fd := range []uintptr{reportFile, wordsFile} {
		if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	return syscall.Exec("/proc/self/exe", tend, environment)
}

var environment = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}

// tend reports that virtiofsd runs, and returns how it ended, with the last that it said.
func tend() error {
	for _, fd := range []int{reportFile, wordsFile} {
		unix.CloseOnExec(fd)
	}
	report := os.NewFile(reportFile, "report")
	if _, err := report.WriteString(started); err != nil {
		return err
	}
	report.Close()
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
	_, err := os.NewFile(wordsFile, "words").WriteString(how)
	return err
}

// maxWords bounds what is kept of a line of virtiofsd, in bytes.
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

// attach puts the directory at place.
func attach() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	if err := unix.Mount("tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=64k"); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	if err := os.Mkdir(place, 0o755); err != nil {
		return err
	}
	if err := unix.MoveMount(directoryFile, "", unix.AT_FDCWD, place, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
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
		if m.Point == place {
			if own++; own > 1 {
				return errors.New("a file system is mounted over it")
			}
		}
		if mounts.Below(m.Point, place) {
			return fmt.Errorf("a file system is mounted below it, at %s", strings.TrimPrefix(m.Point, place+"/"))
		}
	}
	return nil
}
