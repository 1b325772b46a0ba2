// Package virtiofs brings directories of the host into VMs by virtiofsd, which shares the guest's memory. It runs as
// the job's user with the job's groups and no capability, whatever identity a guest names in its requests, in a user
// namespace that knows no other user, and sees nothing of the host but the one directory.
package virtiofs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// CodeNoGateway is of a bind that cannot have the gateway that it asks for.
const CodeNoGateway farm.Code = "no-gateway"

// refused is why virtiofs cannot serve a directory, and what to try.
func refused(hint, format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeNoGateway,
		Message: "virtiofs: " + fmt.Sprintf(format, args...), Hint: hint}
}

const hintFuse = "leave gateway=virtiofs out, or write gateway=fuse"

// descriptions is where packages tell which program serves what, as docs/interop/vhost-user.json of QEMU says; what
// the site has comes before what a package has.
var descriptions = []string{"/etc/qemu/vhost-user", "/usr/share/qemu/vhost-user"}

// usual is where distributions have virtiofsd.
var usual = []string{"/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd", "/usr/lib/virtiofsd"}

// Find returns the path of this host's virtiofsd. Error: CodeNoGateway.
func Find(ctx context.Context) (string, error) {
	path, err := find(os.DirFS("/"))
	if err != nil {
		return "", err
	}
	out, err := program.Start(ctx, program.Call{Path: path, Args: []string{"--version"}, Limit: 10 * time.Second})
	if err != nil {
		return "", refused(hintFuse, "%s does not run here: %v", path, err)
	}
	return path, supported(path, string(out))
}

// find is Find in a tree of files.
func find(files fs.FS) (string, error) {
	for _, dir := range descriptions {
		names, _ := fs.Glob(files, strings.TrimPrefix(dir, "/")+"/*.json")
		slices.Sort(names)
		for _, name := range names {
			var d struct{ Type, Binary string }
			text, err := fs.ReadFile(files, name)
			if err == nil && json.Unmarshal(text, &d) == nil && d.Type == "fs" && filepath.IsAbs(d.Binary) {
				return d.Binary, nil
			}
		}
	}
	for _, path := range usual {
		if _, err := fs.Stat(files, path[1:]); err == nil {
			return path, nil
		}
	}
	return "", refused("install virtiofsd (Debian 12 has it in qemu-system-common); or "+hintFuse,
		"this host has no virtiofsd")
}

// supported refuses the programs whose options and system calls nobody has tried with what confines them here.
func supported(path, version string) error {
	if strings.HasPrefix(version, "virtiofsd version 7.") { // QEMU's own; earlier ones open special files
		return nil
	}
	words := strings.Fields(version)
	return refused(hintFuse, "%s is %s, and this release of grange knows the virtiofsd of QEMU 7 alone", path,
		cmp.Or(strings.Join(words[:min(2, len(words))], " "), "of an unknown version"))
}

// caller is whose rights virtiofsd has.
type caller struct {
	UID, GID uint32
	Groups   []uint32
}

// order is what the process that becomes virtiofsd is told.
type order struct {
	Program string
	caller
}

// arguments are those of QEMU's virtiofsd. Of the capabilities that it keeps by itself none is left.
func arguments(listener int) []string {
	return []string{fmt.Sprintf("--fd=%d", listener), "-f", "--rlimit-nofile=0",
		"-o", "source=" + place, "-o", "sandbox=namespace", "-o", "log_level=err", "-o", "cache=auto", "-o", "xattr",
		"-o", "modcaps=-chown:-dac_override:-fowner:-fsetid:-setgid:-setuid:-mknod:-setfcap"}
}

// Run is the process that Start starts, by a command to which the second part adds a word: it puts the directory where
// virtiofsd looks for it, starts that without what it need not have, and ends with it.
func Run(args []string) error {
	if len(args) == 1 && args[0] == tendWord {
		return tend()
	}
	var o order
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return fmt.Errorf("read what to serve: %w", err)
	}
	err := launch(o, append(os.Args, tendWord))
	fmt.Fprint(os.NewFile(reportFile, "report"), err)
	return err
}

const tendWord = "tend"

// started is what Run reports when virtiofsd runs.
const started = "started"
