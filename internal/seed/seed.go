// Package seed writes the first-boot data of full images: a CD that cloud-init's NoCloud source reads, with grange-guest on
// it. It never puts a job on it: the job comes over the guest's ports.
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
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/kdomanski/iso9660"

	"github.com/grange-project/grange/internal/farm"
)

// Label is the volume label that NoCloud looks for.
const Label = "cidata"

// maxFiles bounds the content of all Files: cloud-init keeps user-data in memory several times.
const maxFiles = 4 * farm.MiB

// Seed is what a VM learns at its first boot.
type Seed struct {
	ID       string // of the VM; a new one makes cloud-init start anew
	Hostname string // 1 to 63 of a-z, 0-9 and dash
	Guest    string // path of grange-guest on the host
	Files    []File // written before grange-guest starts

	Keys     []string // public SSH keys for the image's first user
	UserData []byte   // the user's own, for cloud-init; nil: none
	Network  *Network // nil: as the image does it by itself, which is DHCP
}

// Network is what the VM's one network card is told.
type Network struct {
	MAC     string       // by which the card is found
	Address netip.Prefix // with the length of its network's prefix
	Gateway netip.Addr   // the zero value: none
	DNS     []netip.Addr // may be empty
	Domain  string       // searched for names; "": none
}

// File is one file in the guest, owned by root.
type File struct {
	Path    string // absolute
	Mode    fs.FileMode
	Content []byte
}

var (
	validHostname = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	validID       = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// start is run by cloud-init on every boot, before the network is up.
//
//go:embed start.sh
var start string

// cloudConfig is the part of cloud-config that we need. cloud-init reads YAML, and JSON is YAML; nothing that a user chose can
// break out of a JSON string.
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
	InstanceID    string `json:"instance-id"`
	LocalHostname string `json:"local-hostname"`
}

// userData checks s and returns user-data and meta-data.
func (s Seed) userData() (user, meta []byte, err error) {
	bad := func(format string, args ...any) error {
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadSeed, Message: fmt.Sprintf(format, args...), Hint: "change it and try again"}
	}
	if !validHostname.MatchString(s.Hostname) {
		return nil, nil, bad("%q is no host name", s.Hostname)
	}
	if !validID.MatchString(s.ID) {
		return nil, nil, bad("%q is no VM", s.ID)
	}
	c := cloudConfig{Bootcmd: [][]string{{"/bin/sh", "-c", start}}}
	var sum farm.Bytes
	for _, f := range s.Files {
		// YAML readers refuse a whole document for one control character that JSON lets pass.
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "/" || !utf8.ValidString(f.Path) || strings.ContainsFunc(f.Path, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return nil, nil, bad("%q is no absolute path of a file", f.Path)
		}
		if sum += farm.Bytes(len(f.Content)); sum > maxFiles {
			return nil, nil, bad("the files for the VM are larger than %v", maxFiles)
		}
		c.WriteFiles = append(c.WriteFiles, writeFile{f.Path, fmt.Sprintf("%04o", f.Mode.Perm()), "b64", base64.StdEncoding.EncodeToString(f.Content)})
	}
	if user, err = json.MarshalIndent(c, "", " "); err != nil {
		return nil, nil, err
	}
	meta, err = json.Marshal(metaData{s.ID, s.Hostname})
	return append([]byte("#cloud-config\n"), append(user, '\n')...), append(meta, '\n'), err
}

// WriteTo writes the CD to w.
func (s Seed) WriteTo(w io.Writer) (int64, error) {
	user, meta, err := s.userData()
	if err != nil {
		return 0, err
	}
	guest, err := os.Open(s.Guest)
	if err != nil {
		return 0, &farm.Error{Kind: farm.Internal, Code: farm.CodeBadSeed, Message: fmt.Sprintf("grange-guest %q cannot be read", s.Guest), Hint: "install grange-guest, or name it in the agent's configuration", Err: err}
	}
	defer guest.Close()
	iso, err := iso9660.NewWriter()
	if err != nil {
		return 0, fmt.Errorf("writing seed of %s: %w", s.ID, err)
	}
	defer iso.Cleanup() // it stages files below the temporary directory
	counted := &countingWriter{w: w}
	for _, f := range []struct {
		name string
		r    io.Reader
	}{{"user-data", bytes.NewReader(user)}, {"meta-data", bytes.NewReader(meta)}, {"grange-guest", guest}} {
		if err := iso.AddFile(f.r, f.name); err != nil {
			return 0, fmt.Errorf("writing seed of %s: %w", s.ID, err)
		}
	}
	if err := iso.WriteTo(counted, Label); err != nil {
		return counted.n, fmt.Errorf("writing seed of %s: %w", s.ID, err)
	}
	return counted.n, nil
}

// WriteFile writes the CD to a new file that belongs to uid and gid (-1 keeps the process's own); nobody else may read it. When
// it fails no file is left. Errors: farm.CodeBadSeed, farm.CodeDiskFull.
func (s Seed) WriteFile(file string, uid, gid int) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("writing seed of %s: %w", s.ID, err)
	}
	_, err = s.WriteTo(f)
	err = errors.Join(err, f.Chown(uid, gid), f.Close())
	if err == nil {
		return nil
	}
	os.Remove(file)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeDiskFull, Message: "the file system of " + filepath.Dir(file) + " is full", Hint: "free space there, or wait until other VMs have ended", Err: err}
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
