// Command packages installs, upgrades, removes and purges the packages in dist in Debian roots, installs the rpm
// packages into an empty root, has lintian look at them, and builds them a second time. Its last line is JSON.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

//go:embed debian.sh
var debianScript string

//go:embed rpm.sh
var rpmScript string

// figures are the line at the end.
type figures struct {
	Passed int `json:"passed"`
	Failed int `json:"failed"`
}

func (f *figures) check(name string, err error) {
	if err == nil {
		f.Passed++
		fmt.Println("ok    ", name)
		return
	}
	f.Failed++
	fmt.Printf("FAILED %s\n       %s\n", name, strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "\n       "))
}

// lines counts what a script printed: "ok NAME" or "FAILED NAME" with lines of explanation.
func (f *figures) lines(where string, out []byte, wanted int) {
	n := 0
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\n")
		word, name, _ := strings.Cut(line, " ")
		switch word {
		case "ok":
			f.Passed++
			n++
		case "FAILED":
			f.Failed++
			n++
		default:
			fmt.Println("      ", line)
			continue
		}
		fmt.Printf("%-6s %s: %s\n", word, where, name)
	}
	if n != wanted {
		f.check(where, fmt.Errorf("%d checks of %d came to an end", n, wanted))
	}
}

func main() {
	dist := flag.String("dist", "dist", "`DIR` with the packages")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var f figures
	if err := f.run(ctx, *dist); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		f.Failed++
	}
	json.NewEncoder(os.Stdout).Encode(f)
	if f.Failed > 0 {
		os.Exit(1)
	}
}

func (f *figures) run(ctx context.Context, dist string) error {
	if os.Getuid() != 0 {
		return errors.New("run it as root")
	}
	work, err := os.MkdirTemp("", "grange-packages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	debs, err := filepath.Glob(filepath.Join(dist, "*.deb"))
	if err != nil || len(debs) != 3 {
		return fmt.Errorf("%d deb packages in %s, not 3: make packages", len(debs), dist)
	}
	for _, deb := range debs {
		_, err := output(ctx, "lintian", "--allow-root", "--fail-on", "error,warning", deb)
		f.check("lintian "+filepath.Base(deb), err)
	}
	rpms, err := filepath.Glob(filepath.Join(dist, "*.rpm"))
	if err != nil || len(rpms) != 3 {
		return fmt.Errorf("%d rpm packages in %s, not 3: make packages", len(rpms), dist)
	}
	_, err = output(ctx, "rpmlint", append([]string{"--strict", "--config", "packaging/rpm/rpmlint.toml"}, rpms...)...)
	f.check("rpmlint", err)
	f.check("a second build gives the same bytes", again(ctx, dist, filepath.Join(work, "again")))
	older := filepath.Join(work, "older")
	for _, deb := range debs {
		if err := age(ctx, deb, older); err != nil {
			return err
		}
	}
	slurm := []string{"gcc", "libc6-dev", "libslurm-dev", "slurm-wlm-basic-plugins-dev", "systemd", "man-db", "procps"}
	for _, suite := range []string{"bookworm", "trixie"} {
		if err := f.inRoot(ctx, suite, slurm, debianScript, dist, older); err != nil {
			return err
		}
	}
	return f.inRoot(ctx, "bookworm", []string{"rpm", "busybox-static"}, rpmScript, dist, older)
}

// inRoot runs a script in a Debian root, over which lies a tmpfs, with mounts, processes and network of its own.
func (f *figures) inRoot(ctx context.Context, suite string, packages []string, script, dist, older string) error {
	tree, err := output(ctx, "scripts/debian-root", append([]string{suite, "-"}, packages...)...)
	if err != nil {
		return err
	}
	dist, err = filepath.Abs(dist)
	if err != nil {
		return err
	}
	const enter = `set -e
mount -t tmpfs -o mode=0755 tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o "lowerdir=$1,upperdir=/mnt/upper,workdir=/mnt/work" overlay /mnt/root
mkdir /mnt/root/packages /mnt/root/older
mount --bind -o ro "$2" /mnt/root/packages
mount --bind -o ro "$3" /mnt/root/older
mount -t proc proc /mnt/root/proc
mount --rbind /dev /mnt/root/dev
exec chroot /mnt/root sh -c "$4"`
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--net", "--ipc", "--fork", "--kill-child", "sh",
		"-c", enter, "sh", strings.TrimSpace(tree), dist, older, script)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err = cmd.Run()
	f.lines(suite, out.Bytes(), strings.Count("\n"+script, "\ncheck \""))
	if err != nil {
		fmt.Fprint(os.Stderr, stderr.String()) // the last check's status is counted by its line
	}
	return ctx.Err()
}

// age writes the package once more with a version that is smaller than any of ours.
func age(ctx context.Context, deb, to string) error {
	tree := filepath.Join(to, "tree")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	if _, err := output(ctx, "dpkg-deb", "-R", deb, tree); err != nil {
		return err
	}
	control := filepath.Join(tree, "DEBIAN/control")
	text, err := os.ReadFile(control)
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(text), "\nVersion: ")
	version, _, found := strings.Cut(rest, "\n")
	if !found {
		return fmt.Errorf("%s has no version", deb)
	}
	if err := os.WriteFile(control, []byte(strings.ReplaceAll(string(text), version, "0.0.1")), 0o644); err != nil {
		return err
	}
	name, _, _ := strings.Cut(filepath.Base(deb), "_")
	_, err = output(ctx, "dpkg-deb", "--root-owner-group", "-Znone", "-b", tree,
		filepath.Join(to, name+"_0.0.1_amd64.deb"))
	return err
}

// again builds the packages once more and compares the digests.
func again(ctx context.Context, dist, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	lists, err := filepath.Glob(filepath.Join(dist, "*.*.json"))
	if err != nil {
		return err
	}
	if _, err := output(ctx, "cp", append(lists, to)...); err != nil {
		return err
	}
	if _, err := output(ctx, "scripts/packages", to); err != nil {
		return err
	}
	first, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
	if err != nil {
		return err
	}
	second, err := os.ReadFile(filepath.Join(to, "SHA256SUMS"))
	if err != nil {
		return err
	}
	if !bytes.Equal(first, second) {
		return fmt.Errorf("first:\n%ssecond:\n%s", first, second)
	}
	return nil
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", name, err, out, stderr.String())
	}
	return string(out), nil
}
