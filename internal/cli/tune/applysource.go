package tune

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/apply"
)

func rootFlag(cmd *cobra.Command, root *string) {
	cmd.Flags().Var(&app.NonEmpty{Value: root, Hint: "name a directory; without --root it is this host"}, "root",
		"use the host's files below `DIR` instead of this host; programs are not run, and their effects are written "+
			"there")
}

// systemAt is this host, or the tree in dir.
func systemAt(dir string) (apply.System, error) {
	if dir == "" {
		return apply.Live()
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, app.Usage("name a directory that holds a host's files", "%v", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if dir == "/" {
		return apply.Live()
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, app.Usage("name a directory that holds a host's files", "%v", err)
	}
	if !holdsHost(root) {
		root.Close()
		return nil, app.Usage("name the directory that has proc and sys in it", "%s holds no host", dir)
	}
	return apply.Tree(root), nil
}

func holdsHost(root *os.Root) bool {
	for _, name := range []string{"proc", "sys"} {
		if info, err := root.Stat(name); err == nil && info.IsDir() {
			return true
		}
	}
	return false
}

// recordedAt audits a recorded host, and is what a plan for it is made from: the directory itself, or a copy of the few
// files that count where it is an archive. Free closes the one and removes the other.
func recordedAt(ctx context.Context, f applyFlags) (system apply.System, findings []tuning.Finding, free func(),
	err error) {
	tree, err := hosttree.Open(f.from)
	if err != nil {
		return nil, nil, nil, err
	}
	defer tree.Close()
	if findings, err = findingsOf(tree, f); err != nil {
		return nil, nil, nil, err
	}
	if root, err := os.OpenRoot(f.from); err == nil {
		if holdsHost(root) {
			return apply.Tree(root), findings, func() { root.Close() }, nil
		}
		root.Close()
	}
	dir, err := os.MkdirTemp("", "grange-plan-")
	if err != nil {
		return nil, nil, nil, err
	}
	root, err := os.OpenRoot(dir)
	if err == nil {
		if err = apply.Copy(ctx, root, tree.FS, findings); err == nil {
			return apply.Tree(root), findings, func() { root.Close(); os.RemoveAll(dir) }, nil
		}
		root.Close()
	}
	os.RemoveAll(dir)
	return nil, nil, nil, fmt.Errorf("copy %s: %w", f.from, err)
}

// inTree puts an error of a tree into a person's words: hints name the commands as they have to be given for this tree,
// and what the file system says has a code.
func inTree(dir string, err error) error {
	if err == nil || errors.As(err, new(app.ExitError)) {
		return err
	}
	if own := new(farm.Error); errors.As(err, &own) {
		if own.Code == farm.CodeBadJournal {
			own.Message = strings.TrimSuffix(dir, "/") + own.Message // which begins with the file's path
		}
		if strings.Contains(own.Hint, "grange tune ") {
			own.Hint = tuneCommandLine.ReplaceAllStringFunc(own.Hint,
				func(command string) string { return withRoot(command, dir) })
		}
		return err
	}
	where := dir
	if where == "" {
		where = "this host"
	}
	own := &farm.Error{Message: where, Err: err}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		own.Kind, own.Code, own.Hint = farm.NoCapacity, farm.CodeDiskFull, "make room there; nothing begins without "+
			"a place for its record"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		own.Kind, own.Code, own.Hint = farm.Denied, farm.CodeNeedsRoot, "use sudo, or a copy of the tree that is yours"
	default:
		return err
	}
	return own
}

var tuneCommandLine = lazyregexp.New(`grange tune (plan|apply|undo|history|drift)\b`)

// withRoot is a command for the tree in dir; "" is this host.
func withRoot(command, dir string) string {
	if dir == "" {
		return command
	}
	return command + " --root " + tuning.ShellWord(dir)
}
