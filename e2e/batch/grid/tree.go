package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/deathsig"
)

// tree is where repositories are mounted on demand, as CernVM-FS has it.
const tree = "/cvmfs"

// Repositories: one with programs that the micro image does not have, which pilots use first, and one that only the
// payload needs.
const (
	toolsRepository = "grid.example.org"
	dataRepository  = "atlas.example.org"
)

// repositories are file systems in files, and Debian's automounter, which mounts each when it is used first.
type repositories struct {
	dir         string
	automounter *exec.Cmd
	log         string
}

// serveTree makes the repositories, and starts the automounter with the maps of CernVM-FS's own package: its master map
// names a program, /etc/auto.cvmfs, which says how a repository is mounted. Here that is squashfs, for the client of
// CernVM-FS is no package of Debian's.
func serveTree(ctx context.Context, dir string) (*repositories, error) {
	r := &repositories{dir: dir, log: filepath.Join(dir, "automount.log")}
	tools := filepath.Join(dir, toolsRepository)
	for _, program := range []string{"/usr/bin/curl", "/usr/bin/openssl"} {
		if err := relocate(ctx, program, tools); err != nil {
			return r, err
		}
	}
	data := filepath.Join(dir, dataRepository)
	if err := errors.Join(os.MkdirAll(data, 0o755),
		os.WriteFile(filepath.Join(data, "setup.sh"), []byte("ATLAS_RELEASE=24.0.9\n"), 0o644)); err != nil {
		return r, err
	}
	for _, from := range []string{tools, data} {
		if err := command(ctx, "/usr/bin/mksquashfs", from, from+".sqfs", "-quiet", "-no-progress", "-all-root",
			"-processors", "1"); err != nil {
			return r, err
		}
	}
	return r, r.automount()
}

func (r *repositories) automount() error {
	const program = `#!/bin/sh
file=%s/$1.sqfs
[ -f "$file" ] && echo "-fstype=squashfs,loop,ro,nosuid,nodev :$file"
`
	master := filepath.Join(r.dir, "auto.master")
	if err := errors.Join(os.WriteFile("/etc/auto.cvmfs", []byte(fmt.Sprintf(program, r.dir)), 0o755),
		os.WriteFile(master, []byte(tree+" program:/etc/auto.cvmfs\n"), 0o644)); err != nil {
		return err
	}
	log, err := os.Create(r.log)
	if err != nil {
		return err
	}
	defer log.Close()
	r.automounter = exec.Command("/usr/sbin/automount", "--foreground", "--verbose", "--dont-check-daemon",
		"--pid-file", filepath.Join(r.dir, "automount.pid"), master)
	r.automounter.Stdout, r.automounter.Stderr = log, log
	if err := deathsig.Start(r.automounter, syscall.SIGTERM); err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if at, err := mountedAt(tree); err != nil {
			return err
		} else if at == "autofs" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the automounter does not serve %s: %s", tree, r.words())
		}
	}
}

// words are what the automounter printed.
func (r *repositories) words() string {
	text, _ := os.ReadFile(r.log)
	return string(text)
}

// mounted reports whether a repository is mounted on this host, from the kernel's table: looking at it would mount it.
func mounted(repository string) (bool, error) {
	at, err := mountedAt(filepath.Join(tree, repository))
	return at != "", err
}

// mountedAt is the type of what is mounted at a path; "": nothing.
func mountedAt(path string) (kind string, err error) {
	table, err := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == path {
			kind = f[2] // of the one on top
		}
	}
	return kind, err
}

// end has the automounter unmount all that it has mounted, and end.
func (r *repositories) end() error {
	if r.automounter == nil || r.automounter.Process == nil {
		return nil
	}
	r.automounter.Process.Signal(syscall.SIGCONT)
	r.automounter.Process.Signal(syscall.SIGTERM)
	ended := make(chan error, 1)
	go func() { ended <- r.automounter.Wait() }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		r.automounter.Process.Kill()
		return fmt.Errorf("the automounter does not end: %s", r.words())
	}
	if at, err := mountedAt(tree); err != nil || at != "" {
		return errors.Join(err, fmt.Errorf("the automounter leaves %s on %s: %s", at, tree, r.words()))
	}
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		if text, readErr := os.ReadFile(file); readErr == nil && strings.HasPrefix(string(text), r.dir+"/") {
			err = errors.Join(err, fmt.Errorf("%s is left for %s", file, text))
		}
	}
	return err
}

// library is a line of ldd that names a file.
var library = regexp.MustCompile(`(?m)(/\S+) \(0x`)

// relocate copies a program with its libraries to where it runs from wherever it lies, as programs in CernVM-FS do.
func relocate(ctx context.Context, program, to string) error {
	out, err := exec.CommandContext(ctx, "/usr/bin/ldd", program).Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w", program, err)
	}
	name := filepath.Base(program)
	files := map[string]string{program: "lib/" + name}
	for _, m := range library.FindAllStringSubmatch(string(out), -1) {
		files[m[1]] = "lib/" + filepath.Base(m[1])
	}
	for from, at := range files {
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		at = filepath.Join(to, at)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, text, 0o755)); err != nil {
			return err
		}
	}
	script := strings.ReplaceAll(`#!/bin/sh
d=${0%/bin/*}/lib
OPENSSL_CONF=/dev/null exec "$d/ld-linux-x86-64.so.2" --library-path "$d" "$d/NAME" "$@"
`, "NAME", name)
	if err := os.MkdirAll(filepath.Join(to, "bin"), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "bin", name), []byte(script), 0o755)
}
