// Package seed writes the first-boot data of full images: a CD that cloud-init's NoCloud source reads, with
// grange-guest on it. It never puts a job on it: the job comes over the guest's ports.
package seed

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/kdomanski/iso9660"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// CodeBadSeed is an error code; see docs/errors.md.
const CodeBadSeed farm.Code = "bad-seed"

// Label is the volume label that NoCloud looks for.
const Label = "cidata"

// maxFiles bounds the content of all Files: cloud-init keeps user-data in memory several times.
const maxFiles = 4 * farm.MiB

// The most of what users bring. Clouds take 16 to 64 KiB of user data.
const (
	maxUserData = farm.MiB
	maxKeys     = 256 * farm.KiB
)

// Seed is what a VM learns at its first boot.
type Seed struct {
	ID       string // of the VM; a new one makes cloud-init start anew
	Hostname string // labels of 1 to 63 of a-z, 0-9 and dash, with dots between them
	Guest    string // path of grange-guest on the host
	Files    []File // written before grange-guest starts; none where there is UserData

	Keys     []string // public SSH keys for the image's first user
	Disks    []Disk   // mounted at each boot
	UserData []byte   // the user's own, of whatever kind cloud-init knows; nil: none
	Network  *Network // nil: as the image does it by itself, which is DHCP
}

// Disk is a scratch disk or swap, which its host has formatted.
type Disk struct {
	Serial string     // "": it is in memory
	Path   string     // where it is mounted; "": the guest swaps to it
	Size   farm.Bytes // of what is in memory
}

// File is one file in the guest, owned by root.
type File struct {
	Path    string // absolute
	Mode    fs.FileMode
	Content []byte
}

var (
	validHostname = lazyregexp.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)
	validSerial   = lazyregexp.New(`^[a-z0-9-]{0,20}$`)
	validID       = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// start is run by cloud-init on every boot, before the network is up.
//
//go:embed start.sh
var start string

// disks has the functions that mount a guest's scratch disks.
//
//go:embed disks.sh
var disks string

// cloudConfig is the part of cloud-config that we need. cloud-init reads YAML, and JSON is YAML; nothing that a user
// chose can break out of a JSON string.
type cloudConfig struct {
	Bootcmd    [][]string  `json:"bootcmd"`
	WriteFiles []writeFile `json:"write_files,omitempty"`
}

type writeFile struct {
	Path        string `json:"path"`
	Permissions string `json:"permissions"`
	Encoding    string `json:"encoding"`
	Content     string `json:"content"`
}

type metaData struct {
	InstanceID    string   `json:"instance-id"`
	LocalHostname string   `json:"local-hostname"`
	PublicKeys    []string `json:"public-keys,omitempty"`
}

// document is one file of the CD that cloud-init reads.
type document struct {
	name    string
	content []byte
}

// documents checks s and returns what cloud-init is to read.
//
// Without data of the user's, ours is the user data. With it, the user's is handed on as it is, to the byte: cloud-init
// knows more kinds of it than we do, in more releases, and `cloud-init query userdata` shows what was written. Ours is
// vendor data then, as a boothook: of two cloud-configs with a bootcmd cloud-init would take the user's alone, and a
// boothook has no such rival.
func (s Seed) documents() ([]document, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	meta, err := json.Marshal(metaData{s.ID, s.Hostname, s.Keys})
	if err != nil {
		return nil, err
	}
	documents := []document{{"meta-data", append(meta, '\n')}}
	if len(s.UserData) > 0 {
		documents = append(documents, document{"user-data", s.UserData},
			document{"vendor-data", []byte("#cloud-boothook\n#!/bin/sh\n" + s.script())})
	} else {
		config, err := s.cloudConfig()
		if err != nil {
			return nil, err
		}
		documents = append(documents, document{"user-data", config})
	}
	if s.Network != nil {
		network, err := s.Network.config()
		if err != nil {
			return nil, err
		}
		documents = append(documents, document{"network-config", network})
	}
	return documents, nil
}

// check refuses what could come out as something else, or too large.
func (s Seed) check() error {
	var sum farm.Bytes
	for _, f := range s.Files {
		// YAML readers refuse a whole document for one control character that JSON lets pass.
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "/" || !printable(f.Path) {
			return bad("invalid path %q: it must be absolute, of a file", f.Path)
		}
		sum += farm.Bytes(len(f.Content))
	}
	for _, d := range s.Disks {
		if !validSerial.MatchString(d.Serial) || d.Path == "" && d.Serial == "" || d.Path != "" &&
			(!path.IsAbs(d.Path) || path.Clean(d.Path) != d.Path || !printable(d.Path) ||
				strings.ContainsAny(d.Path, "'\\ ")) {
			return bad("invalid disk %q at %q", d.Serial, d.Path)
		}
	}
	var keys farm.Bytes
	for _, k := range s.Keys {
		if k == "" || !printable(k) {
			return bad("invalid public key %.40q", k)
		}
		keys += farm.Bytes(len(k))
	}
	switch {
	case len(s.Hostname) > 253 || !validHostname.MatchString(s.Hostname):
		return bad("invalid host name %q", s.Hostname)
	case !validID.MatchString(s.ID):
		return bad("invalid VM ID %q", s.ID)
	case sum > maxFiles:
		return bad("the files for the VM are larger than %v", maxFiles)
	case keys > maxKeys:
		return bad("the public keys are larger than %v", maxKeys)
	case len(s.UserData) > int(maxUserData):
		return bad("the user data is larger than %v", maxUserData)
	case len(s.UserData) > 0 && len(s.Files) > 0:
		return bad("a VM with user data can have no files of its host's")
	}
	return nil
}

func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

func bad(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeBadSeed, Message: fmt.Sprintf(format, args...),
		Hint: "change it and try again"}
}

// script is what the guest runs at each boot. Disks come first: what is to run later may need them.
func (s Seed) script() string {
	if len(s.Disks) == 0 {
		return start
	}
	var b strings.Builder
	b.WriteString(disks)
	for _, d := range s.Disks {
		switch {
		case d.Path == "":
			fmt.Fprintf(&b, "swap %s\n", d.Serial)
		case d.Serial == "":
			fmt.Fprintf(&b, "memory '%s' %d\n", d.Path, uint64(d.Size))
		default:
			fmt.Fprintf(&b, "volume %s '%s'\n", d.Serial, d.Path)
		}
	}
	return b.String() + start
}

// cloudConfig is ours, as user data.
func (s Seed) cloudConfig() ([]byte, error) {
	c := cloudConfig{Bootcmd: [][]string{{"/bin/sh", "-c", s.script()}}}
	for _, f := range s.Files {
		c.WriteFiles = append(c.WriteFiles,
			writeFile{f.Path, fmt.Sprintf("%04o", f.Mode.Perm()), "b64", base64.StdEncoding.EncodeToString(f.Content)})
	}
	text, err := json.MarshalIndent(c, "", " ")
	return append([]byte("#cloud-config\n"), append(text, '\n')...), err
}

// guest386 ends the name of grange-guest for guests of 32 bits. A host without it runs none that are ready.
const guest386 = "-386"

// WriteTo writes the CD to w.
func (s Seed) WriteTo(w io.Writer) (int64, error) {
	documents, err := s.documents()
	if err != nil {
		return 0, err
	}
	guest, err := os.Open(s.Guest)
	if err != nil {
		return 0, &farm.Error{Kind: farm.Internal, Code: CodeBadSeed,
			Message: fmt.Sprintf("grange-guest %q cannot be read", s.Guest),
			Hint:    "install grange-guest, or name it in the agent's configuration", Err: err}
	}
	defer guest.Close()
	iso, err := iso9660.NewWriter()
	if err != nil {
		return 0, fmt.Errorf("writing seed of %s: %w", s.ID, err)
	}
	defer iso.Cleanup() // it stages files below the temporary directory
	counted := &countingWriter{w: w}
	for _, d := range documents {
		if err := iso.AddFile(bytes.NewReader(d.content), d.name); err != nil {
			return 0, fmt.Errorf("writing seed of %s: %w", s.ID, err)
		}
	}
	if err := iso.AddFile(guest, "grange-guest"); err != nil {
		return 0, fmt.Errorf("writing seed of %s: %w", s.ID, err)
	}
	if other, err := os.Open(s.Guest + guest386); err == nil {
		defer other.Close()
		if err := iso.AddFile(other, "grange-guest"+guest386); err != nil {
			return 0, fmt.Errorf("writing seed of %s: %w", s.ID, err)
		}
	}
	if err := iso.WriteTo(counted, Label); err != nil {
		return counted.n, fmt.Errorf("writing seed of %s: %w", s.ID, err)
	}
	return counted.n, nil
}

// WriteFile writes the CD to a new file of the process's own; nobody else may read it. When
// it fails no file is left. Errors: CodeBadSeed, farm.CodeDiskFull.
func (s Seed) WriteFile(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("writing seed of %s: %w", s.ID, err)
	}
	_, err = s.WriteTo(f)
	err = errors.Join(err, f.Close())
	if err == nil {
		return nil
	}
	os.Remove(file)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeDiskFull,
			Message: "the file system of " + filepath.Dir(file) + " is full",
			Hint:    "free space there, or wait until other VMs have ended", Err: err}
	}
	return err
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
