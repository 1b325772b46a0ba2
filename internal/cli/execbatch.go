package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
)

// batchJob is `grange exec` in the place of a batch system's job: what comes from the job and from the site instead of
// from flags, and how it ends so that the batch system does the right thing.
type batchJob struct {
	wrapper  *batch.Wrapper
	given    []bindSource  // by flags
	workdir  string        // by flag; "": our own
	requeues int           // how often a job may be queued again
	patience time.Duration // by flag; 0: as the agent says
}

// inPlaceOfJob reports whether a command line, as far as it makes sense, is that of a wrapper.
func inPlaceOfJob(cmd *cobra.Command) bool {
	return cmd != nil && cmd.Name() == "exec" && cmd.Flags().Changed("batch")
}

// siteSocket leaves $GRANGE_SOCKET out of account: in the place of a batch job the environment is its user's, who could
// name an agent of their own there, in a VM of their own even, and have a queue's jobs run outside of the site's
// policy. A flag is the word of whoever wrote the hook.
func (a *app) siteSocket(cmd *cobra.Command) {
	if !cmd.Flags().Changed("socket") {
		a.socket = DefaultSocket
	}
}

// runBatch is `grange exec --batch`.
func (a *app) runBatch(f *execFlags, args []string) error {
	kind, _ := systems.Find(farm.BatchSystem(f.batch))
	b := &batchJob{wrapper: kind.Wrapper, workdir: f.workdir, requeues: config.DefaultRequeues, patience: f.patience}
	if b.wrapper == nil {
		return usage("--batch "+strings.Join(batchWords(), "|"), "no batch system %q", f.batch)
	}
	var e ending
	judge := func(o outcome) outcome {
		e = b.end(o, os.Getenv, os.ReadFile)
		o.status = e.status
		return o
	}
	if r, err := b.runner(a, f, args); err != nil {
		printError(a.err, err)
		judge(outcome{status: exitUsage, err: err})
	} else {
		r.judge = judge
		r.run()
	}
	if e.say != nil {
		printError(a.err, e.say)
	}
	if e.signal != 0 {
		return deathError{e.signal}
	}
	return exitError{e.status}
}

// runner makes what runs the job. What needs the agent comes later, in prepare.
func (b *batchJob) runner(a *app, f *execFlags, args []string) (*runner, error) {
	f.tty = f.tty || b.onTerminal()
	args = command(b.wrapper, args)
	line, err := b.scriptLine(args)
	if err != nil {
		return nil, err
	}
	request, binds, err := f.request(args)
	if err != nil {
		return nil, err
	}
	b.given = binds
	request.Env = batchEnvironment(request.Env, os.Getenv)
	request.Beats = true
	for _, path := range f.prologs {
		script, err := readScript(path)
		if err != nil {
			return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeJobNotStarted,
				Message: "the job's prolog cannot be read", Err: err,
				Hint: "see TaskProlog in slurm.conf, and --task-prolog of the job"}
		}
		request.Prologs = append(request.Prologs, *script)
	}
	r := newRunner(a, request, binds)
	r.limit, r.verbose = f.limit, f.verbose
	r.notes.after, r.notes.pause, r.notes.quiet = batchNotes, seldom, f.quiet
	if b.patience > 0 {
		r.patience = b.patience
	}
	if line != "" {
		r.stdin = io.MultiReader(strings.NewReader(line), os.Stdin)
	}
	r.prepare = func(ctx context.Context) error { return b.prepare(ctx, r, strings.TrimSuffix(line, "\n")) }
	return r, nil
}

// onTerminal tells a job that somebody sits before, as with srun --pty and qsub -I: it has our terminal as it would
// have it on the host.
func (b *batchJob) onTerminal() bool {
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		if !term.IsTerminal(int(f.Fd())) {
			return false
		}
	}
	return true
}

// command is what runs in the VM.
func command(w *batch.Wrapper, args []string) []string {
	if w.Command == nil {
		return args
	}
	return w.Command(args)
}

// scriptLine reads what PBS gives a batch job's login shell to read: one line, the path of the job's script. The shell
// in the VM reads it again. It reads no byte beyond that line, for those that follow are the shell's too.
func (b *batchJob) scriptLine(args []string) (string, error) {
	if !b.wrapper.ScriptOnStdin || len(args) != 1 || term.IsTerminal(int(os.Stdin.Fd())) {
		return "", nil
	}
	return readLine(os.Stdin)
}

// readLine reads one line, with its end, byte by byte.
func readLine(from io.Reader) (string, error) {
	const longest = 4096 // of a path
	var line bytes.Buffer
	for one := make([]byte, 1); line.Len() < longest; {
		n, err := from.Read(one)
		line.Write(one[:n])
		if n == 1 && one[0] == '\n' || errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
	}
	return line.String(), nil
}

// prepare asks the agent what the job is to have, and fills the request with what the VM must see of this host.
func (b *batchJob) prepare(ctx context.Context, r *runner, scriptPath string) error {
	grant, err := r.grant(ctx)
	if err != nil {
		return err
	}
	b.requeues = grant.Requeues
	if b.patience == 0 && grant.Patience > 0 {
		r.patience = time.Duration(grant.Patience) * time.Millisecond
	}
	v := view{own: b.given}
	for _, text := range grant.Binds {
		bind, err := parseBind(text)
		if err != nil {
			return err
		}
		v.site = append(v.site, bind)
	}
	here := b.workdir
	if here == "" {
		if here, err = os.Getwd(); err != nil {
			here = "/tmp"
		}
	}
	v.places = append(jobPlaces(b.wrapper, os.Getenv), bindSource{dir: here, Bind: api.Bind{Target: here}})
	r.binds = v.binds()
	r.request.Binds, r.request.Dir = targets(r.binds), here
	path := scriptOf(r.request.Argv, scriptPath, here)
	if path == "" || covered(r.binds, path) || imagesOwn(path) {
		return nil
	}
	r.request.Script, err = readScript(path)
	if errors.Is(err, errNoScript) {
		return nil // the image's, or nobody's: the VM finds out
	}
	return err
}

// grant asks the agent, and waits for one that is being restarted as keepAsking does.
func (r *runner) grant(ctx context.Context) (api.Grant, error) {
	began, wait := time.Now(), 10*time.Millisecond
	for {
		grant, err := r.client.Grant(ctx)
		if err == nil || ctx.Err() != nil || errors.As(err, new(*api.Problem)) || r.tooLong(err, time.Since(began)) {
			return grant, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return grant, context.Cause(ctx)
		}
		wait = min(2*wait, time.Second)
	}
}

// maxScript is the largest file that is sent into a VM as part of a request.
const maxScript = 64 << 20

// errNoScript is what readScript says of what need not or cannot be sent.
var errNoScript = errors.New("no regular file that can be read")

func readScript(path string) (*api.Script, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoScript, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", path, errNoScript)
	}
	if info.Size() > maxScript {
		return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeScriptSize,
			Message: fmt.Sprintf("%s has %v; at most %v are sent into a VM", path, farm.Bytes(info.Size()),
				farm.Bytes(maxScript)), Hint: "put it where the VM sees it: the working directory, or a bound one"}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoScript, err)
	}
	return &api.Script{Path: path, Content: content}, nil
}

// shells are programs that take a script as their first argument.
var shells = []string{"sh", "bash", "dash", "ksh", "zsh", "csh", "tcsh"}

// scriptOf is the absolute path of the file that the command is, or that it is told to run: on the shell's input, or as
// its first argument; "" for a command that is looked for in PATH.
func scriptOf(argv []string, line, here string) string {
	path := argv[0]
	switch {
	case line != "":
		path = line
	case len(argv) > 1 && slices.Contains(shells, filepath.Base(path)) && strings.Contains(argv[1], "/") &&
		!strings.HasPrefix(argv[1], "-"):
		path = argv[1]
	}
	if !strings.Contains(path, "/") {
		return ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(here, path)
	}
	return filepath.Clean(path)
}

// batchEnvironment is the job's. Where the batch system made a directory for temporary files on this host, the VM has a
// /tmp that is the job's alone, and as short-lived.
func batchEnvironment(env []string, getenv func(string) string) []string {
	host := getenv("TMPDIR")
	if host == "" {
		return env
	}
	var out []string
	for _, kv := range env {
		if key, value, _ := strings.Cut(kv, "="); value != host || key != "TMP" && key != "TEMP" && key != "TEMPDIR" {
			out = append(out, kv)
			continue
		}
		key, _, _ := strings.Cut(kv, "=")
		out = append(out, key+"=/tmp")
	}
	return append(out, "TMPDIR=/tmp")
}
