// Package atomicfile replaces files so that a reader, or a crash of the host, meets the old one or the new one and
// nothing between.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Write replaces the file at path, with this mode whatever the umask. When it returns nil the file is on the disk under
// its name. When it fails, what was there before still is. Where several write at a time the last one counts.
func Write(path string, data []byte, mode fs.FileMode) error {
	// Daemons that read all files of a directory pass over names that begin with a dot and end with .new.
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.new")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name()) // of a full file system it would take a part for ever
		return err
	}
	err = SyncDir(filepath.Dir(path))
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil // a file system that has no such thing for directories
	}
	return err
}

// SyncDir puts the names of a directory, or the content of a file, on the disk.
func SyncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
