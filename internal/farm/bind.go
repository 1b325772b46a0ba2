package farm

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Bind is a directory of the host that a VM shows, as people write it.
type Bind struct {
	Source   string
	Target   string // in the VM; "": as Source
	ReadOnly bool
	SetID    bool // files with set-user-ID and set-group-ID bits and capabilities may be made
	Devices  bool // device nodes may be made
	Gateway  Gateway
	Needs    []string // features of a gateway, without which the bind is refused
}

// Gateway is how a directory of the host comes into a VM.
type Gateway string

// Gateways. The zero value is for the site to choose.
const (
	AnyGateway Gateway = "auto"     // the best of those that the site allows and that work
	FUSE       Gateway = "fuse"     // requests go to the process of the caller
	Virtiofs   Gateway = "virtiofs" // virtiofsd shares the guest's memory
	SFTP       Gateway = "sftp"     // sftp-server answers the guest's sshfs, without encryption
)

// Gateways are those that serve directories, the fastest first.
var Gateways = []Gateway{Virtiofs, FUSE, SFTP}

// Automatic are those that auto chooses from, the best first. sftp keeps less than programs expect, and needs sshfs in
// the image: a bind or the site's policy names it.
var Automatic = []Gateway{Virtiofs, FUSE}

// Check returns an error for what is no gateway.
func (g Gateway) Check() error {
	if g != "" && g != AnyGateway && !slices.Contains(Gateways, g) {
		return fmt.Errorf("gateway %q: it is auto, virtiofs, fuse or sftp", string(g))
	}
	return nil
}

// BindSyntax is how people write a bind.
const BindSyntax = "SRC[:DST][:ro][:suid][:dev][:gateway=NAME][:needs=FEATURE,…]"

// ParseBind reads SRC[:DST] and the options that follow. The source may be relative.
func ParseBind(text string) (Bind, error) {
	parts := strings.Split(text, ":")
	b := Bind{Source: parts[0]}
	parts = parts[1:]
	if len(parts) > 0 && strings.HasPrefix(parts[0], "/") {
		b.Target, parts = path.Clean(parts[0]), parts[1:]
	}
	for _, option := range parts {
		switch option {
		case "ro":
			b.ReadOnly = true
		case "rw":
			b.ReadOnly = false
		case "suid":
			b.SetID = true
		case "dev":
			b.Devices = true
		default:
			key, value, _ := strings.Cut(option, "=")
			switch {
			case key == "gateway" && value != "":
				b.Gateway = Gateway(value)
			case key == "needs" && value != "":
				b.Needs = append(b.Needs, strings.Split(value, ",")...)
			default:
				return b, fmt.Errorf("%q is not %s with an absolute DST", text, BindSyntax)
			}
			if err := b.Gateway.Check(); err != nil {
				return b, fmt.Errorf("%q: %w", text, err)
			}
		}
	}
	if (b.Gateway == Virtiofs || b.Gateway == SFTP) && (b.SetID || b.Devices) {
		return b, fmt.Errorf("%q: %s makes no set-ID files and no devices; leave suid and dev out", text, b.Gateway)
	}
	if b.Source == "" || b.Target == "/" {
		return b, fmt.Errorf("%q is not %s with a DST below /", text, BindSyntax)
	}
	return b, nil
}

// Place is the absolute path in the VM of a bind whose source is absolute.
func (b Bind) Place() string {
	if b.Target != "" {
		return b.Target
	}
	return path.Clean(b.Source)
}

// Options are the options of a bind as ParseBind reads them, each behind a colon.
func (b Bind) Options() string {
	var s string
	for _, o := range []struct {
		set  bool
		word string
	}{{b.ReadOnly, ":ro"}, {b.SetID, ":suid"}, {b.Devices, ":dev"}} {
		if o.set {
			s += o.word
		}
	}
	if b.Gateway != "" {
		s += ":gateway=" + string(b.Gateway)
	}
	if len(b.Needs) > 0 {
		s += ":needs=" + strings.Join(b.Needs, ",")
	}
	return s
}
