package imagerecipe

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/deathsig"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

//go:embed debian.sh
var debianScript string

//go:embed apply.sh
var applyScript []byte

//go:embed parameters.sh
var parametersScript []byte

// Options are what Build needs beside a recipe.
type Options struct {
	Dir         string // where the recipe lies: its files' names begin there
	Out         string // a file, or for kernels a directory, that does not exist yet
	Cache       string // a directory of our own, where packages stay
	GuestBinary string // path of grange-guest, for kernels
	Progress    func(text string)
}

// Built is an image that Build made.
type Built struct {
	Path   string `json:"path"`
	Kind   Kind   `json:"kind"`
	Digest string `json:"digest"` // as `grange image import` will have it
	Size   int64  `json:"size"`
}

// Build makes the image of a recipe. Errors: CodeBadRecipe, vmimage.CodeImageBuild, those of vmimage.Store.
func Build(ctx context.Context, r Recipe, o Options) (Built, error) {
	if _, err := os.Lstat(o.Out); err == nil {
		return Built{}, bad("%s is there already", o.Out)
	}
	if err := os.MkdirAll(o.Cache, 0o755); err != nil {
		return Built{}, err
	}
	switch r.Kind {
	case Debian:
		return buildDebian(ctx, r, o)
	case Change:
		return change(ctx, r, o)
	}
	store, err := vmimage.Open(filepath.Join(o.Cache, "store"))
	if err != nil {
		return Built{}, err
	}
	defer store.Close()
	packages, _ := r.Kind.Packages()
	name := fmt.Sprintf("build-%d", os.Getpid())
	i, err := store.BuildMicro(ctx, vmimage.BuildOptions{Name: name, GuestBinary: o.GuestBinary,
		Packages: append(packages[:len(packages):len(packages)], r.Packages...), Progress: o.Progress})
	if err != nil {
		return Built{}, err
	}
	defer store.Remove(name, func(string) bool { return false })
	return Built{o.Out, r.Kind, i.Digest, int64(i.Size)}, copyKernel(i, o.Out)
}

// copyKernel writes the files of a kernel's image to a directory, as Import reads one.
func copyKernel(i vmimage.Image, dir string) error {
	part := dir + ".part"
	defer os.RemoveAll(part)
	if err := os.Mkdir(part, 0o755); err != nil {
		return err
	}
	for _, f := range i.Files {
		if err := copyFile(filepath.Join(i.Dir, f.Name), filepath.Join(part, f.Name)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(part, "cmdline"), []byte(i.Cmdline+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(part, dir)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// workDir is a directory for one build, below $TMPDIR or /var/tmp: disks are larger than memory.
func workDir() (dir string, remove func(), err error) {
	parent := os.Getenv("TMPDIR")
	if parent == "" {
		parent = "/var/tmp"
	}
	dir, err = os.MkdirTemp(parent, "grange-image.")
	return dir, func() { os.RemoveAll(dir) }, err
}

func buildDebian(ctx context.Context, r Recipe, o Options) (Built, error) {
	dir, remove, err := workDir()
	if err != nil {
		return Built{}, err
	}
	defer remove()
	payload := filepath.Join(dir, "payload.tar")
	epoch := r.time()
	if err := writePayload(payload, r, o.Dir, epoch, false); err != nil {
		return Built{}, err
	}
	size, err := farm.ParseBytes(r.Size)
	if err != nil {
		return Built{}, err
	}
	made, work := filepath.Join(dir, "made"), filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		return Built{}, err
	}
	cmd := exec.CommandContext(ctx, "/bin/bash", "-c", debianScript)
	cmd.Env = []string{"HOME=/", "TMPDIR=" + dir, "OUT=" + made, "SUITE=" + r.Suite, "WORK=" + work,
		"SOURCES=" + strings.Join(r.sources(), "\n"), "PACKAGES=" + strings.Join(r.Packages, " "),
		"ARCHITECTURE=" + r.Architecture, "FIRMWARE=" + r.Firmware, fmt.Sprintf("SIZE=%d", uint64(size)),
		fmt.Sprintf("CLOUD_INIT=%t", r.CloudInit == nil || *r.CloudInit), "PAYLOAD=" + payload,
		"PARAMETERS=" + strings.Join(r.Parameters, " "), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", epoch.Unix())}
	if err := follow(cmd, o.Progress); err != nil {
		return Built{}, err
	}
	return finish(r.Kind, made, o.Out)
}

// time is that which no file of the image is newer than: of the recipe, its snapshot, or this build's environment.
func (r Recipe) time() time.Time {
	if r.Epoch != 0 {
		return time.Unix(r.Epoch, 0)
	}
	if t, err := time.Parse("20060102T150405Z", r.Snapshot); err == nil {
		return t
	}
	if epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil && epoch > 0 {
		return time.Unix(epoch, 0)
	}
	return time.Now()
}

// sources are lines of sources.list; none: those of the host.
func (r Recipe) sources() []string {
	if r.Snapshot == "" {
		return r.Sources
	}
	const keyring = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
	suite := r.Suite
	if suite == "" {
		suite = "bookworm"
	}
	return []string{
		fmt.Sprintf("deb %s http://snapshot.debian.org/archive/debian/%s %s main", keyring, r.Snapshot, suite),
		fmt.Sprintf("deb %s http://snapshot.debian.org/archive/debian-security/%s %s-security main", keyring,
			r.Snapshot, suite)}
}

// follow runs a program, and tells its output as progress. Its last lines are the error's.
func follow(cmd *exec.Cmd, progress func(string)) error {
	cmd.Dir, cmd.WaitDelay = "/", time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := deathsig.Start(cmd, syscall.SIGKILL); err != nil {
		return buildError("cannot start "+cmd.Path, err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		progress(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		return buildError(complaint(stderr.String()), err)
	}
	return nil
}

// complaint is what a program that failed says of it, as one line: the first errors of apt, which those that ran it
// only repeat at the end, and otherwise the last lines.
func complaint(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var apt []string
	for _, line := range lines[:len(lines)-1] {
		if strings.HasPrefix(line, "E: ") {
			apt = append(apt, line)
		}
	}
	if len(apt) > 0 {
		lines = append(apt[:min(3, len(apt))], lines[len(lines)-1])
	}
	return farm.Clean(strings.Join(lines[max(0, len(lines)-5):], "; "), 1000)
}

func buildError(message string, err error) error {
	return &farm.Error{Kind: farm.Unavailable, Code: vmimage.CodeImageBuild, Message: "the image cannot be built: " +
		message, Hint: "check the recipe, this host's packages and its network", Err: err}
}

// finish moves a disk to its place, which others may be reading the directory of, and tells its digest.
func finish(kind Kind, made, out string) (Built, error) {
	part := out + ".part"
	defer os.Remove(part)
	os.Remove(part)
	if err := copyFile(made, part); err != nil {
		return Built{}, err
	}
	f, err := os.Open(part)
	if err != nil {
		return Built{}, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return Built{}, err
	}
	return Built{out, kind, fmt.Sprintf("sha256:%x", sum.Sum(nil)), n}, os.Rename(part, out)
}

// writePayload writes what apply.sh reads, and itself, as a tar. Packages and parameters of the kernel are left to
// others unless installs is set.
func writePayload(file string, r Recipe, dir string, at time.Time, installs bool) error {
	files, err := tarFiles(r, dir, at)
	if err != nil {
		return err
	}
	var users, run strings.Builder
	all := map[string][]byte{"apply.sh": applyScript, "files.tar": files, "packages": nil, "parameters": nil,
		"parameters.sh": parametersScript}
	if installs {
		all["packages"] = []byte(strings.Join(r.Packages, "\n"))
		all["parameters"] = []byte(r.parameterLines())
	}
	for _, u := range r.Users {
		uid, shell, groups := "-", "-", "-"
		if u.UID > 0 {
			uid = strconv.Itoa(u.UID)
		}
		if u.Shell != "" {
			shell = u.Shell
		}
		if len(u.Groups) > 0 {
			groups = strings.Join(u.Groups, ",")
		}
		fmt.Fprintln(&users, u.Name, uid, shell, groups)
		if len(u.Keys) > 0 {
			all[u.Name+".keys"] = []byte(strings.Join(u.Keys, "\n") + "\n")
		}
	}
	for _, command := range r.Run {
		fmt.Fprintln(&run, command)
	}
	all["users"], all["run"] = []byte(users.String()), []byte(run.String())
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := tar.NewWriter(f)
	for name, content := range all {
		err = errors.Join(err, addTo(w, name, 0o600, at, content))
	}
	return errors.Join(err, w.Close(), f.Close())
}

// tarFiles are the files of a recipe, as root's; nil: there are none.
func tarFiles(r Recipe, dir string, at time.Time) ([]byte, error) {
	if len(r.Files) == 0 {
		return nil, nil
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range r.Files {
		content := []byte(f.Text)
		if f.Source != "" {
			source := f.Source
			if !filepath.IsAbs(source) {
				source = filepath.Join(dir, source)
			}
			var err error
			if content, err = os.ReadFile(source); err != nil {
				return nil, bad("file %s: %v", f.Path, err)
			}
		}
		mode, err := f.mode()
		if err := errors.Join(err, addTo(w, path.Clean(f.Path)[1:], mode, at, content)); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

func addTo(w *tar.Writer, name string, mode int64, at time.Time, content []byte) error {
	err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content)),
		ModTime: at, Format: tar.FormatGNU})
	if err == nil {
		_, err = w.Write(content)
	}
	return err
}
