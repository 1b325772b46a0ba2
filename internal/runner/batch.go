package runner

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// Batch is what a job in the place of a batch system's has from the site instead of from flags.
type Batch struct {
	Kind        batch.Kind    // of the system; it has a Wrapper
	Requeues    int           // how often the job may be queued again, as long as no agent has said so
	WaitTimeout time.Duration // how long to look for an agent that is away; 0: as the agent says
	Prologs     []string      // files of scripts to run in the VM before the job
}

// replace puts us into the place of a batch system's job. What needs the agent comes later, in prepare.
func (j *Job) replace(b Batch) error {
	j.batch = &b
	j.notes.after, j.notes.pause = batchNotes, seldom
	if b.WaitTimeout > 0 {
		j.waitTimeout = b.WaitTimeout
	}
	j.request.Batch, j.request.Heartbeats = string(b.Kind.Name), true
	j.request.Argv = command(b.Kind.Wrapper, j.request.Argv)
	j.request.Env = withoutVariables(batchEnvironment(j.request.Env, cmp.Or(os.Getenv("TMPDIR"),
		b.Kind.Wrapper.Temporary)), b.Kind.Wrapper.Own)
	j.request.Pool = os.Getenv(PoolVariable)
	line := ""
	if b.Kind.Wrapper.ScriptOnStdin && len(j.request.Argv) == 1 {
		var err error
		if line, err = scriptLine(j.opts.Stdin); err != nil {
			return err
		}
	}
	if line != "" {
		j.stdin = io.MultiReader(strings.NewReader(line), j.opts.Stdin)
		j.script = strings.TrimSuffix(line, "\n")
	}
	var err error
	j.request.Prologs, err = readPrologs(b.Prologs)
	return err
}

func readPrologs(paths []string) (scripts []api.Script, err error) {
	for _, path := range paths {
		script, err := readScript(path)
		if err != nil {
			return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeJobNotStarted,
				Message: "the job's prolog cannot be read", Err: err,
				Hint: "see TaskProlog in slurm.conf, and --task-prolog of the job"}
		}
		scripts = append(scripts, *script)
	}
	return scripts, nil
}

// command is what runs in the VM.
func command(w *batch.Wrapper, args []string) []string {
	if w.Command == nil {
		return args
	}
	return w.Command(args)
}

// prepare asks the agent what the job is to have, and fills the request with what the VM must see of this host.
func (j *Job) prepare(ctx context.Context) error {
	grant, err := j.grant(ctx)
	if err != nil {
		return err
	}
	if j.batch == nil {
		return j.takeBinds(grant)
	}
	j.batch.Requeues = grant.Requeues
	if j.batch.WaitTimeout == 0 && grant.WaitTimeout > 0 {
		j.waitTimeout = time.Duration(grant.WaitTimeout) * time.Millisecond
	}
	if j.request.Dir == "" {
		j.request.Dir = ownDir()
	}
	if err := j.takeBinds(grant); err != nil {
		return err
	}
	return j.takeScript()
}

// takeBinds has the VM see what the site binds.
func (j *Job) takeBinds(grant api.Grant) (err error) {
	site := grant.Binds
	if home := os.Getenv("HOME"); grant.Home && filepath.IsAbs(home) && filepath.Clean(home) != "/" {
		site = append([]string{filepath.Clean(home)}, site...)
	}
	if j.binds, err = j.view(site); err != nil {
		return err
	}
	j.request.Binds = targets(j.binds)
	if j.batch == nil && j.request.DefaultDir {
		j.request.Dir, j.request.DefaultDir = workdir(j.binds)
		if home := os.Getenv("HOME"); j.request.DefaultDir && covered(j.binds, home) {
			j.request.Dir, j.request.DefaultDir = home, false
		}
	}
	return nil
}

// ownDir is our working directory, or /tmp where that has gone.
func ownDir() string {
	here, err := os.Getwd()
	if err != nil {
		return "/tmp"
	}
	return here
}

// view returns what the VM sees of this host, where the site binds these.
func (j *Job) view(site []string) ([]bind, error) {
	v := view{own: j.asked}
	if j.batch != nil {
		here := bind{Bind: farm.Bind{Source: j.request.Dir, Target: j.request.Dir}}
		v.places = append(jobPlaces(j.batch.Kind.Wrapper, os.Getenv), here)
	}
	for _, text := range site {
		b, err := ParseBind(text)
		if err != nil {
			return nil, err
		}
		v.site = append(v.site, bind{Bind: b})
	}
	return v.binds(), nil
}

// takeScript puts the job's script into the request, where the VM does not see it and has none of its own there.
func (j *Job) takeScript() error {
	path := scriptOf(j.request.Argv, j.script, j.request.Dir)
	if path == "" || covered(j.binds, path) || imagesOwn(path) {
		return nil
	}
	script, err := readScript(path)
	if errors.Is(err, errNoScript) {
		return nil // the image's, or nobody's: the VM finds out
	}
	j.request.Script = script
	return err
}
