// Package virtiofs brings directories of the host into VMs by virtiofsd, which shares the guest's memory. Package
// confine keeps it the job's user.
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

	"github.com/grange-project/grange/internal/gateway/confine"
	"github.com/grange-project/grange/internal/program"
)

// descriptions is where packages tell which program serves what, as docs/interop/vhost-user.json of QEMU says; what
// the site has comes before what a package has.
var descriptions = []string{"/etc/qemu/vhost-user", "/usr/share/qemu/vhost-user"}

// usual is where distributions have virtiofsd.
var usual = []string{"/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd", "/usr/lib/virtiofsd"}

// Find returns the path of this host's virtiofsd. Error: farm.CodeNoGateway.
func Find(ctx context.Context) (string, error) {
	path, err := find(os.DirFS("/"))
	if err != nil {
		return "", err
	}
	out, err := program.Start(ctx, program.Call{Path: path, Args: []string{"--version"}, Limit: 10 * time.Second})
	if err != nil {
		return "", confine.Refused(confine.HintFUSE, "%s does not run here: %v", path, err)
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
	return "", confine.Refused("install virtiofsd (Debian 12 has it in qemu-system-common); or "+confine.HintFUSE,
		"this host has no virtiofsd")
}

// supported refuses the programs whose options and system calls nobody has tried with what confines them here.
func supported(path, version string) error {
	if strings.HasPrefix(version, "virtiofsd version 7.") { // QEMU's own; earlier ones open special files
		return nil
	}
	words := strings.Fields(version)
	return confine.Refused(confine.HintFUSE, "%s is %s, and this release of grange knows the virtiofsd of QEMU 7 alone",
		path, cmp.Or(strings.Join(words[:min(2, len(words))], " "), "of an unknown version"))
}

// Gateway starts virtiofsd, which makes the directory its root by itself.
var Gateway = confine.Gateway{Launch: func(in confine.Inside) (*os.File, error) {
	const first = 3 // behind the standard files
	_, err := os.StartProcess(in.Program, append([]string{in.Program}, arguments(first)...), &os.ProcAttr{Dir: "/",
		Env: confine.Environment, Files: []*os.File{in.Null, in.Null, in.Say, in.Listener}})
	return nil, err
}}

// arguments are those of QEMU's virtiofsd. Of the capabilities that it keeps by itself none is left.
func arguments(listener int) []string {
	return []string{fmt.Sprintf("--fd=%d", listener), "-f", "--rlimit-nofile=0",
		"-o", "source=" + confine.Place, "-o", "sandbox=namespace", "-o", "log_level=err", "-o", "cache=auto",
		"-o", "xattr", "-o", "modcaps=-chown:-dac_override:-fowner:-fsetid:-setgid:-setuid:-mknod:-setfcap"}
}
