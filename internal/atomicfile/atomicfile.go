// Package atomicfile replaces files so that a reader, or a crash of the host, meets the old one or the new one and
// nothing between.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the file at path, with this mode whatever the umask. When it returns nil the file is on the disk under
// its name. When it fails, what was there before still is. One writer at a time may write a path, and nobody else may
// write its directory.
func Write(path string, data []byte, mode fs.FileMode) error {
	// Daemons that read all files of a directory pass over names that begin with a dot and end with .new. The name is
	// always the same, so that a writer that was killed leaves one file at most.
	made := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	err := write(made, data, mode)
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		os.Remove(made) // of a full file system it would take a part for ever
		return err
	}
	return SyncDir(filepath.Dir(path))
}

func write(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
}

// SyncDir puts the names of a directory, or the content of a file, on the disk.
func SyncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
