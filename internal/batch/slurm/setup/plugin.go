package setup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/program"
	source "github.com/grange-project/grange/slurm"
)

// PluginName is the plug-in's file.
const PluginName = "grange_spank.so"

// headerDirs are where a release's header is looked for: Debian and Red Hat, and what `make install` of Slurm does.
var headerDirs = []string{"/usr/include", "/usr/local/include", "/opt/slurm/include", "/usr/local/slurm/include"}

// Compile makes the plug-in for the Slurm whose headers are in include; "": where packages put them. It writes out,
// whole or not at all.
func Compile(ctx context.Context, run program.Run, root, include, out string) error {
	looked := include
	if include == "" {
		looked = strings.Join(headerDirs, ", ")
		for _, dir := range headerDirs {
			if _, err := os.Stat(filepath.Join(root, dir, "slurm/spank.h")); err == nil {
				include = filepath.Join(root, dir)
				break
			}
		}
	}
	if _, err := os.Stat(filepath.Join(include, "slurm/spank.h")); include == "" || err != nil {
		return &farm.Error{Kind: farm.NotFound, Code: CodeNoHeaders,
			Message: "slurm/spank.h is not below " + looked +
				": plug-ins are compiled for the release of Slurm that loads them",
			Hint: "install libslurm-dev and slurm-wlm-basic-plugins-dev (Debian) or slurm-devel (Red Hat), or " +
				"--include DIR with DIR/slurm/spank.h below it"}
	}
	compiler, err := program.Find("cc")
	if errors.Is(err, fs.ErrNotExist) || err != nil {
		if compiler, err = program.Find("gcc"); err != nil {
			return &farm.Error{Kind: farm.NotFound, Code: CodeNoCompiler, Message: "no C compiler is here",
				Hint: "install gcc and libc6-dev (Debian) or gcc and glibc-devel (Red Hat); or compile on another " +
					"host of the same release and copy " + PluginName}
		}
	}
	work, err := os.MkdirTemp(filepath.Dir(out), ".grange-spank-") // beside it, so that the rename is one step
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	c, so := filepath.Join(work, "grange_spank.c"), filepath.Join(work, PluginName)
	if err := os.WriteFile(c, source.Source, 0o644); err != nil {
		return err
	}
	args := []string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-D_FORTIFY_SOURCE=2",
		"-fstack-protector-strong", "-fPIC", "-shared", "-Wl,-z,relro,-z,now", "-isystem", include, "-o", so, c}
	if _, err := run(ctx, program.Call{Path: compiler, Args: args, Env: []string{"TMPDIR=" + work},
		Limit: 2 * time.Minute}); err != nil {
		return &farm.Error{Kind: farm.Internal, Code: CodeNotCompiled, Message: "the plug-in does not compile",
			Err: err, Hint: "releases 22.05 to 24.11 are tested; what the compiler said belongs into a report"}
	}
	if err := os.Chmod(so, 0o755); err != nil {
		return err
	}
	return os.Rename(so, out)
}

var versionText = lazyregexp.New(`(\d+)\.(\d+)\.(\d+)`)

// Release is a version of Slurm. Plug-ins work with the first two numbers that they were compiled for.
type Release struct{ Major, Minor, Micro int }

func (r Release) String() string { return fmt.Sprintf("%d.%02d.%d", r.Major, r.Minor, r.Micro) }

// Same reports whether a plug-in of one works with the other.
func (r Release) Same(other Release) bool { return r.Major == other.Major && r.Minor == other.Minor }

// ParseRelease reads what `slurmd -V` prints: "slurm-wlm 22.05.8" or "slurm 24.11.5".
func ParseRelease(text string) (Release, error) {
	var r Release
	m := versionText.FindString(text)
	if _, err := fmt.Sscanf(m, "%d.%d.%d", &r.Major, &r.Minor, &r.Micro); err != nil {
		return r, &farm.Error{Kind: farm.NotFound, Code: CodeNoSlurm,
			Message: fmt.Sprintf("no release of Slurm in %q", strings.TrimSpace(text)), Hint: "slurmd -V prints it"}
	}
	return r, nil
}
