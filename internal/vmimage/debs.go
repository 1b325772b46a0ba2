package vmimage

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

const (
	aptTimeout  = 10 * time.Minute // a kernel package over a slow line
	dpkgTimeout = 2 * time.Minute
	debianHint  = "images are built on Debian or Ubuntu with apt and dpkg; elsewhere import one with `grange image " +
		"import`"
)

// deb is one package that apt can fetch, of the version it would install.
type deb struct {
	name, file string // Debian's package name; file name below the cache
	digest     string // hex, of SHA-256 or SHA-512: what apt holds for the stronger one of the package lists'
}

var (
	validPackage = lazyregexp.New(`^[a-z0-9][a-z0-9.+-]+(:[a-z0-9]+)?$`)
	printedURI   = lazyregexp.New(`^'[^']*' (\S+) \d+ (?:SHA256:([0-9a-f]{64})|SHA512:([0-9a-f]{128}))$`)
)

// apt is one directory of the store that the host's apt downloads to. apt is a stranger to this host: what arrives
// there is believed by its digest only.
type apt struct {
	store  *Store
	name   string // of the directory, in the store
	dir    *os.File
	unlock func()
}

// newApt makes an empty directory, which its user removes by close.
func (s *Store) newApt() (*apt, error) {
	unlock, err := s.flock("building", syscall.LOCK_SH)
	if err != nil {
		return nil, storeError(s.dir, err)
	}
	a := &apt{name: path.Join("tmp", "apt-"+rand.Text()), store: s, unlock: unlock}
	if err := s.root.Mkdir(a.name, 0o700); err != nil {
		unlock()
		return nil, writeError(s.dir, err)
	}
	if a.dir, err = s.root.Open(a.name); err != nil {
		a.close()
		return nil, storeError(s.dir, err)
	}
	return a, nil
}

func (a *apt) close() {
	a.dir.Close()
	a.store.root.RemoveAll(a.name)
	a.unlock()
}

func (a *apt) run(ctx context.Context, program string, args ...string) ([]byte, error) {
	return command{path: program, args: args, start: fetcher(a.dir), timeout: aptTimeout, hint: debianHint}.run(ctx)
}

// show returns what apt knows of packages.
func (a *apt) show(ctx context.Context, packages ...string) ([]byte, error) {
	return a.run(ctx, "/usr/bin/apt-cache", append([]string{"show", "--no-all-versions", "--"}, packages...)...)
}

// download downloads packages, or prints where from.
func (a *apt) download(ctx context.Context, args ...string) ([]byte, error) {
	return a.run(ctx, "/usr/bin/apt-get", append([]string{"-q", "download"}, args...)...)
}

// realKernel resolves a kernel's meta package to the package that has the kernel in it.
func (a *apt) realKernel(ctx context.Context, meta string) (string, error) {
	text, err := a.show(ctx, meta)
	if err != nil {
		return "", buildError("apt knows no package "+meta,
			"run `apt-get update`, and check that the sources list Debian's main section", err)
	}
	for line := range strings.Lines(string(text)) {
		depends, ok := strings.CutPrefix(line, "Depends:")
		for d := range strings.SplitSeq(depends, ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(d), " ")
			if ok && strings.HasPrefix(name, "linux-image-") && validPackage.MatchString(name) {
				return name, nil
			}
		}
	}
	return "", buildError("package "+meta+" depends on no kernel", "run `apt-get update`", nil)
}

// libraryPackages are the packages of libraries that packages depend on, directly or through others of their kind, and
// that are neither among them nor present. What else they depend on is for an installed system: an image has no package
// system.
func (a *apt) libraryPackages(ctx context.Context, packages, present []string) ([]string, error) {
	seen := map[string]bool{}
	for _, p := range slices.Concat(packages, present) {
		seen[p] = true
	}
	var libraries []string
	for ask := packages; len(ask) > 0; {
		text, err := a.show(ctx, ask...)
		if err != nil {
			return nil, buildError("apt knows not all of "+strings.Join(ask, " "),
				"run `apt-get update`, and check the names and that the sources list Debian's main section", err)
		}
		ask = dependencies(string(text), seen)
		libraries = append(libraries, ask...)
	}
	return libraries, nil
}

// dependencies are the packages of libraries that a listing of apt-cache depends on and that were not seen before. Of
// alternatives the first is taken, as apt does where none is installed.
func dependencies(listing string, seen map[string]bool) []string {
	var found []string
	for line := range strings.Lines(listing) {
		list, ok := strings.CutPrefix(line, "Depends:")
		if !ok {
			if list, ok = strings.CutPrefix(line, "Pre-Depends:"); !ok {
				continue
			}
		}
		for d := range strings.SplitSeq(list, ",") {
			name := strings.TrimRight(strings.TrimSpace(d), "|)")
			name, _, _ = strings.Cut(name, "|")
			name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
			name, _, _ = strings.Cut(name, ":")
			if isLibrary(name) && !seen[name] && validPackage.MatchString(name) {
				seen[name] = true
				found = append(found, name)
			}
		}
	}
	return found
}

// isLibrary knows packages of libraries by their names: Debian's policy calls them after their sonames, and one is
// older than the policy.
func isLibrary(name string) bool { return strings.HasPrefix(name, "lib") || name == "zlib1g" }

// fetch makes sure that the cache has the packages that apt would install now, and returns them in the order asked.
func (s *Store) fetch(ctx context.Context, a *apt, packages []string, progress func(string)) ([]deb, error) {
	text, err := a.download(ctx, append([]string{"--print-uris", "--"}, packages...)...)
	if err != nil {
		return nil, aptError(strings.Join(packages, " "), err)
	}
	var offered []deb
	for line := range strings.Lines(string(text)) {
		if m := printedURI.FindStringSubmatch(strings.TrimSpace(line)); m != nil && m[1] == path.Base(m[1]) {
			name, _, _ := strings.Cut(m[1], "_")
			offered = append(offered, deb{name, m[1], m[2] + m[3]})
		}
	}
	var debs []deb
	var missing []string // for apt
	var arriving []deb
	for _, p := range packages {
		name, _, _ := strings.Cut(p, ":")
		i := slices.IndexFunc(offered, func(d deb) bool { return d.name == name })
		if i < 0 {
			return nil, buildError("apt offers no package "+p, "run `apt-get update`", fmt.Errorf("%q", text))
		}
		debs = append(debs, offered[i])
		if s.checkDeb(offered[i]) != nil {
			missing, arriving = append(missing, p), append(arriving, offered[i])
		}
	}
	if len(missing) == 0 {
		return debs, nil
	}
	progress(fmt.Sprintf("downloading %d packages", len(missing)))
	if _, err := a.download(ctx, append([]string{"--"}, missing...)...); err != nil {
		return nil, aptError(strings.Join(missing, " "), err)
	}
	for _, d := range arriving {
		if err := s.keepDeb(a, d); full(err) {
			return nil, writeError(s.dir, err)
		} else if err != nil {
			return nil, buildError("package "+d.name+" did not arrive whole",
				"check the disk space of "+s.dir+" and the network, and try again", err)
		}
	}
	return debs, nil
}

// keepDeb copies a package that apt downloaded to the cache. The copy is what is checked, and nothing but a file is
// copied.
func (s *Store) keepDeb(a *apt, d deb) error {
	fd, err := unix.Openat(int(a.dir.Fd()), d.file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: d.file, Err: err}
	}
	from := os.NewFile(uintptr(fd), d.file)
	defer from.Close()
	if info, err := from.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(fmt.Errorf("%s is not a file", d.file), err)
	}
	// Others may download the same at the same time.
	part := path.Join("tmp", "deb-"+rand.Text())
	defer s.root.Remove(part)
	to, err := s.root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil {
		return err
	}
	if err := s.root.Rename(part, path.Join("cache", d.file)); err != nil {
		return err
	}
	return s.checkDeb(d)
}

// checkDeb compares a cached package with the signed lists.
func (s *Store) checkDeb(d deb) error {
	f, err := s.root.Open(path.Join("cache", d.file))
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if len(d.digest) == hex.EncodedLen(sha512.Size) {
		h = sha512.New()
	}
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != d.digest {
		s.root.Remove(path.Join("cache", d.file))
		return fmt.Errorf("%s has the digest %s, want %s", d.file, got, d.digest)
	}
	return nil
}

// unpack reads a cached package and adds what want takes to t. Nothing is written to disk. Paths are those of a system
// with merged /usr: "bin/bash" becomes "usr/bin/bash".
func (s *Store) unpack(ctx context.Context, d deb, t tree, want func(p string) bool) error {
	f, err := s.root.Open(path.Join("cache", d.file))
	if err != nil {
		return storeError(s.dir, err)
	}
	defer f.Close()
	c := command{path: "/usr/bin/dpkg-deb", args: []string{"--fsys-tarfile", "-"}, stdin: f, start: reader(nil),
		timeout: dpkgTimeout, hint: debianHint}
	err = c.stream(ctx, func(r io.Reader) error {
		for in := tar.NewReader(r); ; {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			p := mergedUsr(path.Clean("/" + h.Name))
			if !want(p) {
				continue
			}
			switch h.Typeflag {
			case tar.TypeReg:
				data, err := io.ReadAll(in)
				if err != nil {
					return err
				}
				t.file(p, os.FileMode(h.Mode)&0o755, data)
			case tar.TypeSymlink:
				t.link(p, h.Linkname)
			case tar.TypeLink:
				t[p] = t[mergedUsr(path.Clean("/"+h.Linkname))]
			}
		}
	})
	if err != nil && !ended(err) {
		return buildError("package "+d.name+" cannot be read", "delete "+filepath.Join(s.dir, "cache")+" and try again",
			err)
	}
	return err
}

// mergedUsr takes an absolute path and returns where it is on a system with merged /usr, without the leading slash.
func mergedUsr(p string) string {
	p = strings.TrimPrefix(p, "/")
	for _, d := range []string{"bin/", "sbin/", "lib/", "lib64/"} {
		if strings.HasPrefix(p, d) {
			return "usr/" + p
		}
	}
	return p
}

func aptError(what string, err error) error {
	if ended(err) {
		return err
	}
	var known *farm.Error
	if errors.As(err, &known) {
		return err
	}
	text := err.Error() // apt tells what is wrong in words only; they choose a hint, nothing more
	hint := "check the network, then `apt-get update`, and try again"
	switch {
	case strings.Contains(text, "No space left"):
		return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeDiskFull,
			Message: "no space left to download packages", Hint: "free space and try again", Err: err}
	case strings.Contains(text, "Unable to locate"), strings.Contains(text, "Can't find a source"),
		strings.Contains(text, "404"):
		hint = "run `apt-get update`, and check that the sources list Debian's main section"
	}
	return buildError("apt cannot fetch "+what, hint, err)
}

func buildError(message, hint string, err error) error {
	return &farm.Error{Kind: farm.Unavailable, Code: CodeImageBuild, Message: message, Hint: hint, Err: err}
}
