package job

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/runner"
)

// request turns the flags into what the agent is asked for.
func (f *execFlags) request(args []string) (api.JobRequest, error) {
	r := api.JobRequest{Image: f.image, Shape: f.shape, CPUs: f.cpus, Network: f.network, Purpose: f.purpose,
		CPUModel: f.cpuModel, ThreadPolicy: f.threadPolicy, Emulator: f.emulator, NUMA: f.numa, Cache: f.cache,
		Argv: args, Env: f.env, Dir: f.workdir, NoWait: f.noWait || !f.wait, Keep: f.keep, Pull: f.pull,
		Pool: f.pool}
	if strings.Contains(f.image, "/") && strings.HasSuffix(f.image, ".sif") && !strings.Contains(f.image, ":") {
		var err error
		if r.Image, err = filepath.Abs(f.image); err != nil {
			return r, err
		}
	}
	if f.cpus < 0 {
		return r, app.Usage("", "%d CPUs", f.cpus)
	}
	memory, err := f.size(f.memory)
	if err != nil {
		return r, err
	}
	if memory != nil {
		r.Memory = *memory
	}
	if r.Scratch, r.Disks, err = f.disks.Read(); err != nil {
		return r, err
	}
	if r.PageSize, err = f.size(f.pageSize); err != nil {
		r.PageSize, r.Pages = nil, f.pageSize // several, or a word
	}
	if r.BandwidthIn, err = rate(f.bandwidthIn); err != nil {
		return r, err
	}
	if r.BandwidthOut, err = rate(f.bandwidthOut); err != nil {
		return r, err
	}
	for _, kv := range f.env {
		if key, _, ok := strings.Cut(kv, "="); !ok || key == "" {
			return r, app.Usage("--env NAME=VALUE", "--env %q", kv)
		}
	}
	return r, nil
}

// options turns the flags into what the job needs here.
func (f *execFlags) options(a *app.App) (runner.Options, error) {
	o := runner.Options{Socket: a.Socket, Terminal: f.tty, Limit: f.limit, Stdin: os.Stdin, Stdout: os.Stdout,
		Stderr: os.Stderr, Notes: a.Err, Quiet: f.quiet, Verbose: f.verbose}
	if f.noInput {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return o, err
		}
		o.Stdin = null
	}
	if f.tty {
		o.Notes = output.OnRaw(a.Err)
	}
	if a.JSON {
		o.Events = func(e api.JobEvent) { output.NewJSON(a.Err).Encode(e) }
	}
	var err error
	if o.Publish, err = runner.ParsePublished(f.publish); err != nil {
		return o, err
	}
	if o.Binds, err = parseBinds(f.binds); err != nil {
		return o, err
	}
	if f.workdir != "" && !filepath.IsAbs(f.workdir) {
		return o, app.Usage("", "--workdir %q is not an absolute path", f.workdir)
	}
	return o, nil
}

func (f *execFlags) size(text string) (*uint64, error) {
	if text == "" {
		return nil, nil
	}
	b, err := farm.ParseBytes(text)
	v := uint64(b)
	return &v, err
}

// rate reads bits a second; 0: the flag says nothing.
func rate(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	v, err := farm.ParseRate(text)
	return uint64(v), err
}

func parseBinds(texts []string) ([]farm.Bind, error) {
	var binds []farm.Bind
	for _, text := range texts {
		b, err := runner.ParseBind(text)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(b.Source)
		switch {
		case err != nil:
			return nil, app.Usage("", "--bind %s: %v", text, err)
		case !info.IsDir():
			return nil, app.Usage("bind the directory that holds it", "--bind %s: %s is not a directory", text,
				b.Source)
		}
		binds = append(binds, b)
	}
	return binds, nil
}
