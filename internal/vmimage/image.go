// Package vmimage keeps the images that VMs start from: it builds, imports, verifies, lists and removes them.
// An image never changes once it is in a store; a name may come to mean another image. The package never writes to an
// image that a VM may read, never lets QEMU see a header it has not read itself, and never installs anything on the
// host.
package vmimage

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/grange-project/grange/internal/container"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// Codes of errors of images; see docs/errors.md.
const (
	CodeBadImageName farm.Code = "bad-image-name"
	CodeManyImages   farm.Code = "ambiguous-image" // a digest prefix that fits several images
	CodeImageBuild   farm.Code = "image-build"
	CodeRootKernel   farm.Code = "root-kernel" // the micro image is missing, or of an earlier release
	CodeImageKind    farm.Code = "image-kind"  // an image that cannot be what it is wanted for
)

// Kind says how a VM starts from an image.
type Kind string

// The kinds of image.
const (
	Kernel Kind = "kernel" // a kernel and an initramfs that the hypervisor loads itself
	Disk   Kind = "disk"   // one disk with its own boot loader
	Root   Kind = "root"   // a container's file system, read-only; the kernel is that of the micro image
)

// Names of the files of an image.
const (
	initrdFile = "initrd"
	recordFile = "image.json"
	rootFile   = "root." // and its format
)

// kernelFiles are the names a kernel may have, preferred first. QEMU tells ELF from bzImage by content.
var kernelFiles = []string{"vmlinux", "vmlinuz"}

// Image is one image of a store. All paths are below Dir, which exists until the image is removed.
type Image struct {
	Name        string // empty for an image that lost its name to a newer one
	Kind        Kind
	Digest      string     // "sha256:" and 64 hex digits; for a disk, that of its only file, as sha256sum prints it
	Format      string     // of a disk: "qcow2" or "raw"; of a root: "erofs" or "squashfs"
	VirtualSize farm.Bytes // of a disk: what the guest sees
	Size        farm.Bytes // of all files, holes included
	Created     time.Time
	Cmdline     string // of a kernel: its command line, complete but for what one VM adds
	Description string
	Files       []File
	Dir         string            // absolute
	Source      string            // reference of what it was fetched from; "" of others
	SourceSum   string            // checksum of the file there that was compared; "" of others
	SignedBy    string            // who signed the list that its checksum is in; "" of others
	Firmware    string            // that a disk needs: UEFI; "" of others, which start by BIOS
	Config      *container.Config // of a root: how its programs are run; nil of others
	Mark        Mark              // what administrators have said of it
	Site        bool              // the site vouches for its content: VMs of it may hold the site's secrets
}

// File is one file of an image.
type File struct {
	Name   string
	Size   farm.Bytes
	SHA256 string // hex
}

// Kernel is the absolute path of the kernel; empty for a disk image.
func (i Image) Kernel() string { return i.path(kernelFiles...) }

// Initrd is the absolute path of the initramfs; empty for a disk image.
func (i Image) Initrd() string { return i.path(initrdFile) }

// Disk is the absolute path of the disk; empty for a kernel image.
func (i Image) Disk() string { return i.path("disk.qcow2", "disk.raw") }

// Root is the absolute path of a container's file system; empty for other images.
func (i Image) Root() string { return i.path(rootFile+"erofs", rootFile+"squashfs") }

func (i Image) path(names ...string) string {
	for _, f := range i.Files {
		for _, n := range names {
			if f.Name == n {
				return filepath.Join(i.Dir, n)
			}
		}
	}
	return ""
}

// record is image.json. Fields are only ever added.
type record struct {
	Kind        Kind         `json:"kind"`
	Digest      string       `json:"digest"`
	Format      string       `json:"format,omitempty"`
	VirtualSize farm.Bytes   `json:"virtual_size,omitempty"`
	Created     time.Time    `json:"created"`
	Cmdline     string       `json:"cmdline,omitempty"`
	Description string       `json:"description,omitempty"`
	Source      string       `json:"source,omitempty"`
	SourceSum   string       `json:"source_sum,omitempty"`
	SignedBy    string       `json:"signed_by,omitempty"`
	Files       []fileRecord `json:"files"`

	Config   *container.Config `json:"config,omitempty"`
	Firmware string            `json:"firmware,omitempty"`
}

type fileRecord struct {
	Name   string     `json:"name"`
	Size   farm.Bytes `json:"size"`
	SHA256 string     `json:"sha256"`
}

func (i Image) marshal() ([]byte, error) {
	r := record{i.Kind, i.Digest, i.Format, i.VirtualSize, i.Created.UTC(), i.Cmdline, i.Description,
		i.Source, i.SourceSum, i.SignedBy, nil, i.Config, i.Firmware}
	for _, f := range i.Files {
		r.Files = append(r.Files, fileRecord(f))
	}
	text, err := json.MarshalIndent(r, "", "  ")
	return append(text, '\n'), err
}

// unmarshal reads image.json. Its file names are checked: the record may come from a directory that others wrote.
func unmarshal(text []byte) (Image, error) {
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return Image{}, err
	}
	i := Image{Kind: r.Kind, Digest: r.Digest, Format: r.Format, VirtualSize: r.VirtualSize, Created: r.Created,
		Cmdline: r.Cmdline, Description: r.Description, Source: r.Source, SourceSum: r.SourceSum,
		SignedBy: r.SignedBy, Config: r.Config, Firmware: r.Firmware}
	for _, f := range r.Files {
		if !validName.MatchString(f.Name) {
			return Image{}, fmt.Errorf("file name %q", f.Name)
		}
		i.Files = append(i.Files, File(f))
		i.Size += f.Size
	}
	if !validDigest.MatchString(i.Digest) {
		return Image{}, fmt.Errorf("digest %q", i.Digest)
	}
	return i, nil
}

var (
	validName   = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	validDigest = lazyregexp.New(`^sha256:[0-9a-f]{64}$`)
	validPrefix = lazyregexp.New(`^sha256:[0-9a-f]{4,64}$`)
)

// CheckName reports whether name may name an image: 1 to 63 of a-z, 0-9, dot, underscore and dash, a letter or digit
// first.
func CheckName(name string) error {
	if validName.MatchString(name) {
		return nil
	}
	return &farm.Error{Kind: farm.Invalid, Code: CodeBadImageName,
		Message: fmt.Sprintf("%q cannot name an image", name),
		Hint:    "use up to 63 of a-z, 0-9, dot, underscore and dash, a letter or digit first"}
}
