package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// rotatedTime is in the name of each backup of a directory: by name they are in order.
const rotatedTime = "20060102T150405Z"

var rotatedName = lazyregexp.New(`^grange-\d{8}T\d{6}Z\.db$`)

// unfinished is how the directory begins that a backup is written in.
const unfinished = ".grange-backup-"

// Rotate makes a backup in a directory of backups, and then deletes the oldest ones, so that keep of them are left.
// Files of other names stay. It returns the file, and the names of the deleted ones.
func Rotate(ctx context.Context, from, dir string, keep int, now time.Time) (file string, copied Copied,
	deleted []string, err error) {
	unlock, err := lockBackups(dir)
	if err != nil {
		return "", copied, nil, err
	}
	defer unlock()
	if err := removeUnfinished(dir); err != nil {
		return "", copied, nil, cannotRotate(dir, err)
	}
	file = filepath.Join(dir, "grange-"+now.UTC().Format(rotatedTime)+".db")
	if copied, err = Backup(ctx, from, file); err != nil {
		return "", copied, nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return file, copied, nil, cannotRotate(dir, err)
	}
	for _, name := range outdated(entries, keep) {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return file, copied, deleted, cannotRotate(dir, err)
		}
		deleted = append(deleted, name)
	}
	return file, copied, deleted, nil
}

// outdated are the names of backups to delete, the oldest first.
func outdated(entries []fs.DirEntry, keep int) []string {
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() && rotatedName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names[:max(0, len(names)-keep)]
}

// lockBackups keeps a second rotation out of the directory, which would take the first one's file for one that was
// left.
func lockBackups(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, cannotRotate(dir, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, &farm.Error{Kind: farm.Conflict, Code: CodeNoStore,
			Message: "another backup is being written to " + dir, Hint: "wait for its end"}
	}
	return func() { f.Close() }, nil
}

// removeUnfinished removes what a backup left that was killed.
func removeUnfinished(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), unfinished) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

func cannotRotate(dir string, err error) error {
	return &farm.Error{Kind: farm.Unavailable, Code: CodeNoStore, Message: "backups in " + dir, Err: err,
		Hint: "the directory must be there, and be writable"}
}
