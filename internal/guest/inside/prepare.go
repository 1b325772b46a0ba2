package inside

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/guest"
)

// addUser makes the job's user known by name where the image does not know the number.
func addUser(u guest.User) error {
	if err := addLine("/etc/passwd", 2, u.UID,
		fmt.Sprintf("%s:x:%d:%d::%s:%s", u.Name, u.UID, u.GID, u.Home, shellOf(u))); err != nil {
		return err
	}
	for _, g := range u.Groups {
		if err := addLine("/etc/group", 2, g.GID, fmt.Sprintf("%s:x:%d:", g.Name, g.GID)); err != nil {
			return err
		}
	}
	return nil
}

func shellOf(u guest.User) string {
	if _, err := os.Stat(u.Shell); err != nil {
		return "/bin/sh"
	}
	return u.Shell
}

// addLine appends line to a file of colon-separated fields unless one has id in that field.
func addLine(path string, field int, id uint32, line string) error {
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for known := range strings.Lines(string(text)) {
		if fields := strings.Split(strings.TrimSpace(known), ":"); len(fields) > field &&
			fields[field] == fmt.Sprint(id) {
			return nil
		}
	}
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		text = append(text, '\n')
	}
	return os.WriteFile(path, append(text, line+"\n"...), 0o644)
}

// mountScratch mounts the disk with that serial at /tmp.
func mountScratch(serial string) error {
	if err := loadModules("disk"); err != nil {
		return err
	}
	return mountDisk(serial, "/tmp")
}

func findDisk(serial string) (string, error) {
	const timeout = 10 * time.Second
	for deadline := time.Now().Add(timeout); ; time.Sleep(2 * time.Millisecond) {
		paths, _ := filepath.Glob("/sys/block/vd*/serial")
		for _, path := range paths {
			if text, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(text)) == serial {
				return "/dev/" + filepath.Base(filepath.Dir(path)), nil
			}
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("no disk %s after %v", serial, timeout)
		}
	}
}
