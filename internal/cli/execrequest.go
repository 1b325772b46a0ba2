package cli

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/gateway"
	"github.com/grange-project/grange/internal/steps"
)

// bindSource is a directory of the host that the job sees.
type bindSource struct {
	dir string
	api.Bind
	setID, devices bool               // see farm.Bind
	opened         *gateway.Directory // by openBinds
	place          steps.Place        // where that is
}

// options are what the VM may do with the directory.
func (b bindSource) options(oneFilesystem bool) gateway.Options {
	return gateway.Options{ReadOnly: b.ReadOnly, SetID: b.setID, Devices: b.devices, OneFileSystem: oneFilesystem}
}

// text is the bind as parseBind reads it.
func (b bindSource) text() string {
	return b.dir + ":" + b.Target + farm.Bind{ReadOnly: b.ReadOnly, SetID: b.setID, Devices: b.devices}.Options()
}

// request turns the flags into what the agent is asked for.
func (f *execFlags) request(args []string) (api.JobRequest, []bindSource, error) {
	r := api.JobRequest{ID: api.NewID(), Image: f.image, Shape: f.shape, CPUs: f.cpus, Network: f.network,
		Purpose: f.purpose, CPUModel: f.cpuModel, ThreadPolicy: f.threadPolicy, Emulator: f.emulator, NUMA: f.numa,
		Cache: f.cache, Argv: args, Env: environment(f.env), Home: os.Getenv("HOME"), NoWait: f.noWait ||
			!f.wait, Keep: f.keep, Batch: f.batch}
	if f.cpus < 0 {
		return r, nil, usage("", "%d CPUs", f.cpus)
	}
	memory, err := f.size(f.memory)
	if err != nil {
		return r, nil, err
	}
	if memory != nil {
		r.Memory = *memory
	}
	if r.Scratch, err = f.size(f.scratch); err != nil {
		return r, nil, err
	}
	if r.PageSize, err = f.size(f.pageSize); err != nil {
		r.PageSize, r.Pages = nil, f.pageSize // several, or a word
	}
	for _, kv := range f.env {
		if key, _, ok := strings.Cut(kv, "="); !ok || key == "" {
			return r, nil, usage("--env NAME=VALUE", "--env %q", kv)
		}
	}
	binds, err := parseBinds(f.binds)
	if err != nil {
		return r, nil, err
	}
	r.Binds = targets(binds)
	r.Dir = f.workdir
	if r.Dir == "" {
		r.Dir = workdir(binds)
	}
	if !filepath.IsAbs(r.Dir) {
		return r, nil, usage("", "--workdir %q is not an absolute path", r.Dir)
	}
	if f.tty {
		rows, cols, err := terminalSize()
		if err != nil {
			return r, nil, usage("leave --tty out", "--tty needs a terminal here")
		}
		r.Terminal = &api.Size{Rows: rows, Cols: cols}
	}
	return r, binds, nil
}

// targets are the binds as the agent is told of them.
func targets(binds []bindSource) []api.Bind {
	var out []api.Bind
	for _, b := range binds {
		out = append(out, b.Bind)
	}
	return out
}

func (f *execFlags) size(text string) (*uint64, error) {
	if text == "" {
		return nil, nil
	}
	b, err := farm.ParseBytes(text)
	v := uint64(b)
	return &v, err
}

func parseBinds(texts []string) ([]bindSource, error) {
	var binds []bindSource
	for _, text := range texts {
		b, err := parseBind(text)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(b.dir)
		switch {
		case err != nil:
			return nil, usage("", "--bind %s: %v", text, err)
		case !info.IsDir():
			return nil, usage("bind the directory that holds it", "--bind %s: %s is not a directory", text, b.dir)
		}
		binds = append(binds, b)
	}
	return binds, nil
}

// parseBind reads a bind as a flag or the site's configuration has it.
func parseBind(text string) (bindSource, error) {
	b, err := farm.ParseBind(text)
	if err != nil {
		return bindSource{}, usage("--bind "+farm.BindSyntax, "--bind %v", err)
	}
	if b.Source, err = filepath.Abs(b.Source); err != nil {
		return bindSource{}, err
	}
	if b.Place() == "/" {
		return bindSource{}, usage("--bind /:/host", "--bind %s: the place in the VM is an absolute path below /", text)
	}
	return bindSource{dir: b.Source, Bind: api.Bind{Target: b.Place(), ReadOnly: b.ReadOnly}, setID: b.SetID,
		devices: b.Devices}, nil
}

// workdir is our own directory as the VM sees it, or /tmp where it does not.
func workdir(binds []bindSource) string {
	here, err := os.Getwd()
	if err != nil {
		return "/tmp"
	}
	for _, b := range binds {
		if below, err := filepath.Rel(b.dir, here); err == nil && below != ".." && !strings.HasPrefix(below, "../") {
			return filepath.Join(b.Target, below)
		}
	}
	return "/tmp"
}

// environment is ours and what was set on top. TMPDIR names a directory of this host: the VM has /tmp.
func environment(set []string) []string {
	var env []string
	for _, kv := range append(os.Environ(), set...) {
		if strings.HasPrefix(kv, "TMPDIR=") || strings.HasPrefix(kv, "GRANGE_SOCKET=") {
			continue
		}
		env = append(env, kv)
	}
	return env
}

func terminalSize() (rows, cols uint16, err error) {
	w, h, err := term.GetSize(int(os.Stdin.Fd()))
	return uint16(h), uint16(w), err
}
