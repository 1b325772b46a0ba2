package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/gateway"
	"github.com/grange-project/grange/internal/gateway/features"
	"github.com/grange-project/grange/internal/steps"
)

// bind is a directory of the host that the job sees.
type bind struct {
	farm.Bind                    // with a target
	opened    *gateway.Directory // by openBinds
	at        steps.Place        // where that is
}

func newBinds(given []farm.Bind) []bind {
	var binds []bind
	for _, b := range given {
		binds = append(binds, bind{Bind: b})
	}
	return binds
}

// ParseBind reads a bind as a flag or the site's configuration has it. Its source is absolute, and its target set.
func ParseBind(text string) (farm.Bind, error) {
	b, err := farm.ParseBind(text)
	if err != nil {
		return b, usage("--bind "+farm.BindSyntax, "--bind %v", err)
	}
	if b.Gateway, err = features.Choose(b); err != nil {
		return b, fmt.Errorf("--bind %s: %w", text, err)
	}
	if b.Source, err = filepath.Abs(b.Source); err != nil {
		return b, err
	}
	if b.Target = b.Place(); b.Target == "/" {
		return b, usage("--bind /:/host", "--bind %s: the place in the VM is an absolute path below /", text)
	}
	return b, nil
}

// options are what the VM may do with the directory.
func (b bind) options(oneFilesystem bool) gateway.Options {
	return gateway.Options{ReadOnly: b.ReadOnly, SetID: b.SetID, Devices: b.Devices, OneFileSystem: oneFilesystem}
}

// text is the bind as ParseBind reads it.
func (b bind) text() string { return b.Source + ":" + b.Target + b.Options() }

// targets are the binds as the agent is told of them.
func targets(binds []bind) []api.Bind {
	var out []api.Bind
	for _, b := range binds {
		a := api.Bind{Target: b.Target, ReadOnly: b.ReadOnly, Gateway: string(b.Gateway)}
		if b.opened != nil {
			a.FD = b.opened.Descriptor()
		}
		if b.SetID || b.Devices { // which the caller alone sees to
			a.Gateway = string(farm.FUSE)
		}
		out = append(out, a)
	}
	return out
}

// workdir is our own directory as the VM sees it, or /tmp where it does not, for want of a better one.
func workdir(binds []bind) (dir string, byDefault bool) {
	here, err := os.Getwd()
	if err != nil {
		return "/tmp", true
	}
	for _, b := range binds {
		if rel, err := filepath.Rel(b.Source, here); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return filepath.Join(b.Target, rel), false
		}
	}
	return "/tmp", true
}

// openBinds opens what the VM is to see, once and for all: from here on no name on the host counts. A step's task sees
// what its job's script sees, in the very same places, and nothing else: where a name leads to on the way to it, the VM
// may have decided.
func (j *Job) openBinds() error {
	var kept []bind
	for _, b := range j.binds {
		d, err := gateway.Open(b.Source)
		if err != nil {
			return bindError(b.Source, err)
		}
		b.opened = d
		if b.at.Path, err = d.Path(); err != nil {
			return fmt.Errorf("bind %s: %w", b.Source, err)
		}
		if j.step != nil {
			given, ok := j.step.Places[b.Target]
			if !ok || given.Path != b.at.Path {
				d.Close()
				j.out.printf("the VM does not get %s: it is not one of the places that the job's script has, or no "+
					"longer the same", b.Source)
				continue
			}
			b.ReadOnly = b.ReadOnly || given.ReadOnly
			b.SetID, b.Devices = b.SetID && given.SetID, b.Devices && given.Devices
		}
		b.at.ReadOnly, b.at.SetID, b.at.Devices = b.ReadOnly, b.SetID, b.Devices
		kept = append(kept, b)
	}
	j.binds, j.request.Binds = kept, targets(kept)
	return nil
}

func bindError(dir string, err error) error {
	refused := new(gateway.RefusedError)
	if !errors.As(err, &refused) {
		return fmt.Errorf("bind %s: %w", dir, err)
	}
	return &farm.Error{Kind: farm.Invalid, Code: CodeBindRefused, Message: "no VM may see " + refused.Error(),
		Hint: "bind directories that hold data; the VM has a /proc, /sys and /dev of its own"}
}
