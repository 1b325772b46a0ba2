// Package imagerecipe builds images from recipe files: kernels with an initramfs, Debian disks from packages, and
// changed copies of others' disks, which are changed inside a VM.
package imagerecipe

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/stricttoml"
)

// CodeBadRecipe is of a recipe file that cannot be built; see docs/errors.md.
const CodeBadRecipe farm.Code = "bad-recipe"

// Kind is what a recipe makes.
type Kind string

// Kinds. Micro, Worker and Cloud are a kernel and an initramfs, Debian and Change are disks.
const (
	Micro  Kind = "micro"
	Worker Kind = "worker" // a node of Slurm
	Cloud  Kind = "cloud"  // with an SSH server
	Debian Kind = "debian" // of packages, with cloud-init
	Change Kind = "change" // another disk, changed
)

// kindPackages are what a kind adds to the micro image. slurmd finds the plug-ins of the cluster's configuration in
// them; copying files by scp needs an sftp server.
var kindPackages = map[Kind][]string{Micro: nil,
	Worker: {"slurmd", "slurm-wlm-basic-plugins", "munge"}, Cloud: {"dropbear-bin", "openssh-sftp-server"}}

// Packages are those that a kind adds to the micro image; ok is false of kinds that are disks, and unknown ones.
func (k Kind) Packages() (packages []string, ok bool) {
	packages, ok = kindPackages[k]
	return packages, ok
}

// Recipe is a recipe file.
type Recipe struct {
	Kind     Kind     `toml:"kind"`
	Packages []string `toml:"packages"` // of Debian also NAME=VERSION

	// Of a debian.
	Suite        string   `toml:"suite"`        // "": that of this host
	Sources      []string `toml:"sources"`      // lines of sources.list; none: the Debian archives of this host's apt
	Snapshot     string   `toml:"snapshot"`     // a time of snapshot.debian.org: 20260101T000000Z
	Epoch        int64    `toml:"epoch"`        // seconds since 1970: no file is newer; 0: that of the snapshot
	Architecture string   `toml:"architecture"` // amd64 or i386
	Firmware     string   `toml:"firmware"`     // bios or efi
	Size         string   `toml:"size"`         // of the disk that a guest sees
	CloudInit    *bool    `toml:"cloud_init"`

	// Of a change.
	From   string `toml:"from"`   // a disk, beside the recipe or absolute
	SHA256 string `toml:"sha256"` // of from; "": not compared
	Memory string `toml:"memory"` // of the VM that it is changed in

	// Of disks.
	// Parameters are added to the kernel's command line; "auto" stands for those that the release of a changed disk
	// needs.
	Parameters []string `toml:"kernel_parameters"`
	Files      []File   `toml:"file"`
	Users      []User   `toml:"user"`
	Run        []string `toml:"run"` // commands of root's shell, after all else
}

// File is one to put into the image.
type File struct {
	Path   string `toml:"path"`
	Text   string `toml:"text"`
	Source string `toml:"source"` // a file beside the recipe, in the place of text
	Mode   string `toml:"mode"`   // 0644
}

// User is one to make in the image, without a password.
type User struct {
	Name   string   `toml:"name"`
	UID    int      `toml:"uid"` // 0: the next one
	Groups []string `toml:"groups"`
	Shell  string   `toml:"shell"`
	Keys   []string `toml:"ssh_keys"`
}

// Parse reads a recipe. Error: CodeBadRecipe.
func Parse(text []byte) (Recipe, error) {
	r := Recipe{}
	if err := stricttoml.Unmarshal(text, &r); err != nil {
		return r, bad("%v", err)
	}
	if err := r.checkKeys(); err != nil {
		return r, err
	}
	if r.Architecture == "" {
		r.Architecture = "amd64"
	}
	if r.Firmware == "" {
		r.Firmware = "bios"
	}
	if r.Size == "" {
		r.Size = "8G"
	}
	if r.Memory == "" {
		r.Memory = "1G"
	}
	return r, r.check()
}

var (
	packageName     = lazyregexp.New(`^[a-z0-9][a-z0-9.+-]+(=[A-Za-z0-9.+:~-]+)?$`)
	suiteName       = lazyregexp.New(`^[a-z][a-z0-9.-]*$`)
	snapshotAt      = lazyregexp.New(`^20[0-9]{6}T[0-9]{6}Z$`)
	userName        = lazyregexp.New(`^[a-z_][a-z0-9_-]{0,30}$`)
	kernelParameter = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_.,:=/+-]*$`)

	hexSum = lazyregexp.New(`^[0-9a-f]{64}$`)
)

// checkKeys refuses keys that the kind of the recipe does not take: nothing would come of them.
func (r Recipe) checkKeys() error {
	debian := r.Suite != "" || len(r.Sources) > 0 || r.Snapshot != "" || r.Epoch != 0 || r.CloudInit != nil ||
		r.Architecture != "" || r.Firmware != "" || r.Size != ""
	change := r.From != "" || r.SHA256 != "" || r.Memory != ""
	disk := len(r.Files)+len(r.Users)+len(r.Run)+len(r.Parameters) > 0
	switch r.Kind {
	case Micro, Worker, Cloud:
		if debian || change || disk {
			return bad("kind %q has only packages: it is made of whole packages, in memory", r.Kind)
		}
	case Debian:
		if change {
			return bad(`"from", "sha256" and "memory" are of kind "change"`)
		}
	case Change:
		if debian {
			return bad(`kind "change" has no suite, sources, snapshot, epoch, cloud_init, architecture, firmware and size: ` +
				"they are the image's own")
		}
	}
	return nil
}

func (r Recipe) check() error {
	switch r.Kind {
	case Micro, Worker, Cloud:
	case Debian:
		if err := r.checkDebian(); err != nil {
			return err
		}
	case Change:
		if r.From == "" {
			return bad(`kind "change" needs "from", the disk to change`)
		}
		if r.SHA256 != "" && !hexSum.MatchString(r.SHA256) {
			return bad("invalid sha256 %q: want 64 hexadecimal digits", r.SHA256)
		}
	default:
		return bad("unknown kind %q: micro, worker, cloud, debian or change", r.Kind)
	}
	for _, p := range r.Packages {
		if !packageName.MatchString(p) {
			return bad("invalid package %q", p)
		}
		if _, known := kindPackages[r.Kind]; known && strings.Contains(p, "=") {
			return bad("package %q: kind %q takes the versions that apt has here", p, r.Kind)
		}
	}
	return r.checkContent()
}

func (r Recipe) checkDebian() error {
	if r.Suite != "" && !suiteName.MatchString(r.Suite) {
		return bad("invalid suite %q", r.Suite)
	}
	if r.Snapshot != "" && (!snapshotAt.MatchString(r.Snapshot) || len(r.Sources) > 0) {
		return bad(`invalid snapshot %q: want a time such as 20260101T000000Z, and no sources`, r.Snapshot)
	}
	for _, line := range r.Sources {
		if !strings.HasPrefix(line, "deb ") || strings.ContainsAny(line, "\n'") {
			return bad(`invalid source %q: write a line of sources.list, "deb …"`, line)
		}
	}
	if r.Architecture != "amd64" && r.Architecture != "i386" {
		return bad("unknown architecture %q: amd64 or i386", r.Architecture)
	}
	if r.Firmware != "bios" && r.Firmware != "efi" || r.Firmware == "efi" && r.Architecture == "i386" {
		return bad("unknown firmware %q for %s: bios, or efi for amd64", r.Firmware, r.Architecture)
	}
	size, err := farm.ParseBytes(r.Size)
	if err != nil || size < 2*farm.GiB || size%farm.MiB != 0 {
		return bad("invalid size %q: want at least 2G", r.Size)
	}
	return nil
}

func (r Recipe) checkContent() error {
	for _, p := range r.Parameters {
		if !kernelParameter.MatchString(p) {
			return bad("invalid kernel parameter %q", p)
		}
		if p == "auto" && r.Kind == Debian {
			return bad(`kernel parameter "auto" is of kind "change": no release that is built here needs one`)
		}
	}
	for _, f := range r.Files {
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "/" {
			return bad("the path %q of a file is not absolute, or has detours", f.Path)
		}
		if f.Text != "" && f.Source != "" {
			return bad("file %s has a text and a source", f.Path)
		}
		if _, err := f.mode(); err != nil {
			return bad("mode %q of file %s is not octal, as 0644", f.Mode, f.Path)
		}
	}
	for _, u := range r.Users {
		if !userName.MatchString(u.Name) || u.UID < 0 || u.UID > 1<<31 || strings.ContainsAny(u.Shell, "'\n ") {
			return bad("invalid user %q, or an invalid uid or shell", u.Name)
		}
		for _, g := range u.Groups {
			if !userName.MatchString(g) {
				return bad("invalid group %q of user %s", g, u.Name)
			}
		}
	}
	return nil
}

func (f File) mode() (int64, error) {
	if f.Mode == "" {
		return 0o644, nil
	}
	mode, err := strconv.ParseInt(f.Mode, 8, 32)
	if err == nil && (mode < 0 || mode > 0o7777) {
		err = strconv.ErrRange
	}
	return mode, err
}

func bad(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeBadRecipe,
		Message: "invalid recipe: " + fmt.Sprintf(format, args...), Hint: "see docs/guide/images.md, Recipes"}
}
