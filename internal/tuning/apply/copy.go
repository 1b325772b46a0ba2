package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// planned is what a plan is made from besides the values that findings name. Programs may link any of /etc and /boot to
// each other.
var planned = []string{"etc", "boot", "lib/modprobe.d", "usr/lib/modprobe.d", "sys/module", "sys/kernel/mm", nodeDir,
	meminfo, runDir}

// ofProcess is what a plan is made from of each process.
var ofProcess = []string{"comm", "cmdline"}

// Bounds of a copy.
const (
	maxCopied      = 256 << 20
	maxCopiedFiles = 200_000
)

// copier copies files of a recorded host into a directory.
type copier struct {
	ctx   context.Context
	to    *os.Root
	from  fs.FS
	bytes int64
	files int
}

// Copy puts into an empty directory those files of a recorded host that a plan for findings is made from, so that Tree
// can read them. Pipes and devices are left out. A file that is too long for a plan is cut where the plan will say so.
func Copy(ctx context.Context, to *os.Root, from fs.FS, findings []tuning.Finding) error {
	c := &copier{ctx: ctx, to: to, from: from}
	for _, name := range planned {
		if err := c.below(name); err != nil {
			return err
		}
	}
	processes, err := fs.ReadDir(from, "proc")
	if err != nil && !missing(err) {
		return err
	}
	for _, p := range processes {
		if strings.Trim(p.Name(), "0123456789") != "" {
			continue
		}
		for _, name := range ofProcess {
			if err := c.file(path.Join("proc", p.Name(), name)); err != nil {
				return err
			}
		}
	}
	for _, f := range findings {
		for _, change := range f.Changes {
			if change.Path == "" || !fs.ValidPath(change.Path) {
				continue
			}
			if err := c.file(change.Path); err != nil {
				return err
			}
		}
	}
	return nil
}

// below copies a file, or a directory with all that is in it; links stay links.
func (c *copier) below(top string) error {
	if _, err := fs.Stat(c.from, top); err != nil {
		return nil // also what is closed to us: the audit has named it
	}
	return fs.WalkDir(c.from, top, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && (missing(err) || errors.Is(err, fs.ErrPermission)):
			return nil
		case err != nil:
			return err
		case d.IsDir():
			if err := c.count(0); err != nil {
				return err
			}
			return c.to.MkdirAll(name, 0o755)
		case d.Type()&fs.ModeSymlink != 0:
			return c.link(name)
		}
		return c.file(name)
	})
}

func (c *copier) count(n int) error {
	c.files++
	c.bytes += int64(n)
	if c.files > maxCopiedFiles || c.bytes > maxCopied {
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRecording,
			Message: fmt.Sprintf("more than %d files or %s of them count for a plan", maxCopiedFiles,
				farm.Bytes(maxCopied)),
			Hint: "record the host with `grange host record`"}
	}
	return c.ctx.Err()
}

func (c *copier) link(name string) error {
	target, err := fs.ReadLink(c.from, name)
	if err != nil {
		return err
	}
	if err := c.count(len(target)); err != nil {
		return err
	}
	if err := c.to.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	return c.to.Symlink(target, name)
}

// file copies a plain file, unless it is there. Where links lead to it, the copy is a plain file all the same.
func (c *copier) file(name string) error {
	info, err := fs.Stat(c.from, name)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	if _, err := c.to.Stat(name); err == nil {
		return nil
	}
	f, err := c.from.Open(name)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return err
	}
	if err := c.count(len(data)); err != nil {
		return err
	}
	if err := c.to.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	return c.to.WriteFile(name, data, 0o644)
}
