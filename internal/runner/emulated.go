package runner

import (
	"os"
	"path/filepath"
	"time"
)

// emulatedNote is the file whose time says when this user was last told that VMs of this host are emulated; "": the
// user has no place for it.
func emulatedNote() string {
	dir, err := os.UserCacheDir()
	name, errName := os.Hostname()
	if err != nil || errName != nil {
		return ""
	}
	return filepath.Join(dir, "grange", "emulated-"+filepath.Base(name))
}

// firstOfDay reports whether a day has passed since it last reported true for this file. It reports true where the file
// cannot be written: a note too many is better than none.
func firstOfDay(path string, now time.Time) bool {
	if path == "" {
		return true
	}
	if info, err := os.Stat(path); err == nil {
		if age := now.Sub(info.ModTime()); age >= 0 && age < 24*time.Hour {
			return false
		}
	}
	if os.MkdirAll(filepath.Dir(path), 0o700) == nil && os.WriteFile(path, nil, 0o600) == nil {
		os.Chtimes(path, now, now) // a file that was there keeps its time when nothing is written
	}
	return true
}
