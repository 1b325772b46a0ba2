package farm

import (
	"fmt"
	"path"
	"strings"
)

// Bind is a directory of the host that a VM shows, as people write it.
type Bind struct {
	Source   string
	Target   string // in the VM; "": as Source
	ReadOnly bool
	SetID    bool // files with set-user-ID and set-group-ID bits and capabilities may be made
	Devices  bool // device nodes may be made
}

// BindSyntax is how people write a bind.
const BindSyntax = "SRC[:DST][:ro][:suid][:dev]"

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
			return b, fmt.Errorf("%q is not %s with an absolute DST", text, BindSyntax)
		}
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
	return s
}
